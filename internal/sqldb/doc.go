// Package sqldb opens the databases that the sql transport and the dedup store
// share: SQLite, PostgreSQL, and MariaDB or MySQL.
//
//	db, err := sqldb.Open(ctx, sqldb.Options{Dialect: sqldb.Postgres, Server: sqldb.Server{URL: "postgres://…"}})
//	err = db.InTx(ctx, func(tx *sql.Tx) error {
//		_, err := db.Exec(ctx, tx, "DELETE FROM leat_deliveries WHERE id = ?", id)
//		return err
//	})
//
// [Open] brings the schema up to date under a lock (or only checks it, see
// [Options.Verify]), and looks whether every table, column and right is there.
// All who open the same database with the same options in one process share
// its connections.
//
// Statements name tables as leat_topics, columns that are reserved words in
// double quotes, and arguments as ?. [DB.SQL] makes of that what the database
// takes: it puts the schema and the table prefix in, and numbers the arguments.
// [DB.Exec], [DB.Query] and [DB.QueryRow] do it themselves; on [DB.Pool], which
// is PostgreSQL without database/sql between, it is for the caller.
// [Dialect.Now] is the database's clock. Columns of bytes take []byte, never a
// string, which PostgreSQL would read escapes in.
//
// [DB.InTx] runs a transaction, in READ COMMITTED, again after a conflict with
// another one; [DB.Retry] does that for anything else. [DB.Explain] names the
// database in an error; [Unusable] tells which errors waiting will not mend,
// [Rejected] which are the fault of a value, and [Conflict] and [Busy] which are
// a matter of luck. All else is an outage.
//
// [DB.Wake] tells readers that there is something new, [DB.Subscribe] is how
// they hear of it: on PostgreSQL those of other processes too, as long as
// [DB.Listening].
package sqldb
