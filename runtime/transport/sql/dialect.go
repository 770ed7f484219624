package sql

import (
	"strconv"
	"strings"

	"github.com/leat-io/leat/internal/sqldb"
)

// dialect is what differs between databases.
type dialect interface {
	// kind names the database in YAML and in attributes.
	kind() string
	// clock is an expression for the database's time in microseconds.
	clock() string
	// lateCommits: a row may become visible after one with a higher id, so
	// that a reader has to look back all the time.
	lateCommits() bool
	// ids is a query that yields the numbers in its one argument, as numbers
	// encodes them.
	ids() string
	numbers(ids []int64) any
	// forward reads the messages of n partitions. Arguments for each: slot,
	// topic, group, part, the id to start above, the number of rows at most.
	// Columns as row.scan has them.
	forward(n int) string
	// byID reads the messages with the numbers in its one argument, in their
	// order, as slot 0.
	byID() string
	// behind looks for ids alone. Arguments for each of n: slot, topic, group,
	// part, the first id, the last id, the number of rows at most.
	behind(n int) string
}

type sqlite struct{}

func (sqlite) kind() string      { return "sqlite" }
func (sqlite) clock() string     { return sqldb.Now }
func (sqlite) lateCommits() bool { return false }
func (sqlite) ids() string       { return "SELECT value FROM json_each(?)" }

func (sqlite) numbers(ids []int64) any {
	b := make([]byte, 0, 2+10*len(ids))
	b = append(b, '[')
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, id, 10)
	}
	return string(append(b, ']'))
}

// head is what a row has beside headers and payload, in one column: each
// column of its own would cost two allocations. It survives whatever types a
// row inserted by hand has.
const head = "iif(m.id IS NULL, '', format('%d %d ', m.published_at, octet_length(m.uuid)) || coalesce(m.uuid, '') || coalesce(m.key, ''))" +
	", CAST(m.headers AS TEXT), CAST(m.payload AS BLOB)"

func (sqlite) forward(n int) string {
	return union(n, "SELECT format('%d %d ', ?, d.id) || "+head+
		" FROM leat_deliveries d LEFT JOIN leat_messages m ON m.id = d.id"+
		" WHERE d.topic_id = ? AND d.group_id = ? AND d.part = ? AND d.id > ? ORDER BY d.id LIMIT ?")
}

func (d sqlite) byID() string {
	return "SELECT format('0 %d ', m.id) || " + head + " FROM leat_messages m WHERE m.id IN (" + d.ids() + ") ORDER BY m.id"
}

func (sqlite) behind(n int) string {
	return union(n, "SELECT ?, d.id FROM leat_deliveries d"+
		" WHERE d.topic_id = ? AND d.group_id = ? AND d.part = ? AND d.id >= ? AND d.id <= ? ORDER BY d.id LIMIT ?")
}

func union(n int, query string) string {
	one := "SELECT * FROM (" + query + ")"
	return strings.Repeat(one+" UNION ALL ", n-1) + one
}
