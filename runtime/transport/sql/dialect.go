package sql

import (
	"context"
	stdsql "database/sql"
	"strconv"
)

// partRows are rows of one partition, in the order of their ids.
type partRows struct {
	part int32
	ids  []int64
}

// dialect is what differs between databases. Statements are written as
// package sqldb has them.
type dialect interface {
	// kind names the database in YAML and in attributes.
	kind() string
	// clock is an expression for the database's time in microseconds.
	clock() string
	// lateCommits: others write at the same time, so that a row may become
	// visible after one with a higher id, and a reader has to look back all the time.
	lateCommits() bool

	// in is a condition on a column: it has one of the numbers in its one
	// argument, as numbers encodes them.
	in(column string) string
	numbers(ids []int64) any
	// onConflict ends an INSERT: of a row whose key is there, the columns are
	// set to what was to be inserted; without columns it stays as it is.
	onConflict(key string, columns ...string) string
	// shared and locked end a SELECT within a transaction, until whose end
	// others cannot change its rows, or not lock them either; free leaves out
	// rows that others have locked.
	shared() string
	locked() string
	free() string

	// forward gives the messages above the cursors of jobs, up to their limits,
	// in order of ids for each, with the job's index as slot, until fn says false.
	forward(ctx context.Context, db *database, jobs []*job, fn func(*row) (bool, error)) error
	// byID gives messages in the order of ids, with the topic of each as slot,
	// until fn says false.
	byID(ctx context.Context, db *database, ids []int64, fn func(*row) (bool, error)) error
	// behind gives for each job the ids from back up to the cursor, at most limit.
	behind(ctx context.Context, db *database, jobs []*job, limit int) ([][]int64, error)

	// watcher is one for a consumer; nil where nothing becomes visible late.
	watcher() watcher

	// settle writes what a batch comes to for one source, in one transaction,
	// and gives the spells that are not ours any more. Works are in the order
	// of their partitions.
	settle(ctx context.Context, c *consumer, src *source, ws []*work) (lost []*spell, err error)

	// generation is that of the topic in a row of t, and unread a condition on a
	// message in a row of m: no group waits for it.
	generation(t string) string
	unread() string
	// clean deletes those of a topic's messages that no group waits for, in one
	// transaction, if the topic is of the generation still that is known.
	clean(ctx context.Context, db *database, tp topic, gen int64, ids []int64) (known bool, err error)

	// insert publishes what next gives in one transaction, and tells which
	// topics are missing and may not be made; their messages are left out.
	insert(ctx context.Context, p *producer, next func() []*publication) (missing map[string]error, err error)

	// deleteRows deletes rows of one group from a table: in the order given, and
	// looking at no others, which may be locked.
	deleteRows(ctx context.Context, db *database, tx *stdsql.Tx, table string, src *source, rows []partRows) error
	// deleteSome deletes rows of a table. Arguments: topic, group, how many at most.
	deleteSome(table string) string

	// pass takes the gate of a generation away if no publisher of it is at work.
	pass(ctx context.Context, db *database, tx *stdsql.Tx, tp topic, gen int64) (bool, error)
}

// appendNumbers writes numbers with commas between.
func appendNumbers(b []byte, numbers ...int64) []byte {
	for i, n := range numbers {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, n, 10)
	}
	return b
}

func joined(ids []int64) string { return string(appendNumbers(make([]byte, 0, 10*len(ids)), ids...)) }
