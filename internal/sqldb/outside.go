package sqldb

import "strings"

// Tables are those of one schema and prefix, for statements on a connection
// that this package did not open.
type Tables struct{ names }

// TablesOf names them, if the names are legal. schema is empty but on PostgreSQL, and prefix is leat_
// where it is empty.
func TablesOf(d Dialect, schema, tablePrefix string) (*Tables, error) {
	if tablePrefix == "" {
		tablePrefix = prefix
	}
	if err := checkNames(d, schema, tablePrefix); err != nil {
		return nil, err
	}
	if schema != "" {
		schema += "."
	}
	return &Tables{names{dialect: d, tables: schema + tablePrefix}}, nil
}

// NotifySQL is that of [DB.NotifySQL].
func (t *Tables) NotifySQL(name string) (query string, args []any) {
	if t.dialect != Postgres {
		return "", nil
	}
	return notifySQL, []any{channel(t.tables), " " + name}
}

const notifySQL = "SELECT pg_notify($1, $2)"

// channel is one for each table prefix, whatever the schema: a statement from
// outside may leave that to the search path.
func channel(tables string) string {
	return tables[strings.LastIndexByte(tables, '.')+1:] + "wake"
}
