package sql_test

import (
	stdsql "database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/sql"
	"github.com/leat-io/leat/runtime/transport/transporttest"
)

// conformance presents a fresh file for every case. Every other transport has
// connections of its own, as another process has.
func conformance(change func(*sql.Transport)) transporttest.Options {
	const lease = 3 * time.Second
	return transporttest.Options{
		Open: func(tb transporttest.TB) transporttest.Broker {
			f := &file{path: filepath.Join(tb.TempDir(), "worker.db")}
			n := 0
			return transporttest.Broker{
				Transport: func(tb transporttest.TB) transport.Transport {
					n++
					tr, err := sql.OpenSQLite(sql.Options{
						Path: f.path, Poll: 20 * time.Millisecond, Lease: lease,
						Synchronous: []string{"normal", "full"}[n%2],
					})
					require.NoError(tb, err)
					if change != nil {
						change(tr)
					}
					return tr
				},
				Kill: func(_ transporttest.TB, c transport.Consumer, _ transport.ConsumerConfig) { sql.Kill(c) },
				Foreign: func(tb transporttest.TB, topic, group string) int {
					return f.foreign(tb, topic, group)
				},
			}
		},
		Takeover: lease + lease/2,
		Lacks: map[string]string{
			"Restart":      "the broker is a file",
			"PublishLater": "SQLite has one writer at a time, so ids are committed in their order",
		},
	}
}

// file is the database as other programs use it.
type file struct{ path string }

func (f *file) open(tb transporttest.TB) *stdsql.DB {
	tb.Helper()
	db, err := stdsql.Open("sqlite", f.path+"?_pragma=busy_timeout(10000)")
	require.NoError(tb, err)
	db.SetMaxOpenConns(1)
	tb.Cleanup(func() { require.NoError(tb, db.Close()) })
	return db
}

// deliver gives the message of the last insert to a group.
const deliver = "INSERT INTO leat_deliveries SELECT t.id, g.id, m.part, m.id FROM leat_topics t JOIN leat_groups g ON g.topic_id = t.id" +
	" JOIN leat_messages m ON m.id = ? WHERE t.name = ?"

func (f *file) foreign(tb transporttest.TB, topic, _ string) int {
	tb.Helper()
	db := f.open(tb)
	rows := []string{
		"NULL, NULL, NULL, NULL, 1",
		"'', '', '', '', 2",
		"'broken', NULL, '{\"a\": ', 'x', 3",
		"'array', NULL, '[1]', 'x', 4",
		"'cut', NULL, x'000561', 'x', 5",
		"'badutf', x'ff', x'7b2261223a22ff227d', x'ff', 6",
		"'typed', 7, '{\"n\": 1.50, \"b\": true, \"o\": {\"x\": [1]}, \"z\": null, \"n\": 2}', 8, 7",
		"'time', 1.5, NULL, 2.5, 'yesterday'",
	}
	for _, values := range rows {
		res, err := db.ExecContext(tb.Context(), "INSERT INTO leat_messages (topic_id, part, uuid, key, headers, payload, published_at) SELECT id, 3, "+values+" FROM leat_topics WHERE name = ?", topic)
		require.NoError(tb, err, values)
		id, err := res.LastInsertId()
		require.NoError(tb, err)
		_, err = db.ExecContext(tb.Context(), deliver, id, topic)
		require.NoError(tb, err, values)
	}
	return len(rows)
}

func TestConformance(t *testing.T) {
	t.Parallel()
	report := transporttest.Run(t, conformance(nil))
	for name := range report.Skipped() {
		require.Contains(t, []string{"I1_restart", "G4_late_commit", "G4_commit_order", "G4_late_group"}, name)
	}
}

