package sql_test

import (
	"context"
	stdsql "database/sql"
	"hash/fnv"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/sql"
	"github.com/leat-io/leat/runtime/transport/transporttest"
)

// fileConformance presents a fresh file for every case. Every other transport has
// connections of its own, as another process has. With late, rows can appear
// late, and with lookBack they are looked for.
func fileConformance(late, lookBack bool) transporttest.Options {
	const lease = 3 * time.Second
	return transporttest.Options{
		Open: func(tb transporttest.TB) transporttest.Broker {
			f := &file{path: filepath.Join(tb.TempDir(), "worker.db")}
			var opened atomic.Int32
			b := transporttest.Broker{
				Transport: func(tb transporttest.TB) transport.Transport {
					tr, err := sql.OpenSQLite(sql.Options{
						Path: f.path, Poll: 20 * time.Millisecond, Lease: lease,
						Synchronous: []string{"full", "normal"}[opened.Add(1)%2],
					})
					require.NoError(tb, err)
					if lookBack {
						sql.LateCommits(tr)
					}
					return tr
				},
				Kill:    func(_ transporttest.TB, c transport.Consumer, _ transport.ConsumerConfig) { sql.Kill(c) },
				Foreign: f.foreign,
			}
			if late {
				b.PublishLater = f.publishLater
			}
			return b
		},
		Takeover: lease + lease/2,
		Lacks: map[string]string{
			"PublishLater": "SQLite has one writer at a time, so ids are committed in their order",
			"Oversize":     "it takes what fits into memory",
			"*":            "the broker is a file",
		},
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	report := transporttest.Run(t, fileConformance(false, false))
	for name, why := range report.Skipped() {
		require.Regexp(t, "^no .*: ", why, name)
	}
}

// What two writers of SQLite cannot do is done by hand, so that the reader of
// other databases is tried: an id is taken now, and its row comes later.
func TestConformance_lateCommits(t *testing.T) {
	t.Parallel()
	for _, res := range transporttest.Check(t.Context(), fileConformance(true, true), "G4_late_commit", "G4_commit_order", "G4_late_group") {
		require.Empty(t, res.Skip, res.Case)
		require.Empty(t, res.Failures, res.Case)
	}
}

// The cases find a reader that trusts the order of ids.
func TestConformance_lateCommitsNotLookedFor(t *testing.T) {
	t.Parallel()
	o := fileConformance(true, false)
	o.Patience = 3 * time.Second
	require.Len(t, transporttest.Check(t.Context(), o, "G4_late_commit", "G4_commit_order").Failed(), 2)
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

// deliver gives a message to every group of its topic.
const deliver = "INSERT INTO leat_deliveries SELECT m.topic_id, g.id, m.part, m.id FROM leat_messages m JOIN leat_groups g ON g.topic_id = m.topic_id WHERE m.id = ?"

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
		_, err = db.ExecContext(tb.Context(), deliver, id)
		require.NoError(tb, err, values)
	}
	return len(rows)
}

// publishLater takes an id for each message, by a row that goes at once, and
// inserts what belongs there when it is committed.
func (f *file) publishLater(tb transporttest.TB, topic string, msgs ...*message.Message) (commit func()) {
	tb.Helper()
	db := f.open(tb)
	exec := func(query string, args ...any) int64 {
		res, err := db.ExecContext(context.WithoutCancel(tb.Context()), query, args...)
		require.NoError(tb, err, query)
		id, err := res.LastInsertId()
		require.NoError(tb, err)
		return id
	}
	ids := make([]int64, len(msgs))
	for i := range msgs {
		ids[i] = exec("INSERT INTO leat_messages (topic_id, part) SELECT id, 0 FROM leat_topics WHERE name = ?", topic)
		exec("DELETE FROM leat_messages WHERE id = ?", ids[i])
	}
	return func() {
		for i, m := range msgs {
			key := m.Metadata.Get(transport.KeyHeader)
			h := fnv.New32a()
			_, _ = h.Write([]byte(key))
			exec("INSERT INTO leat_messages (id, topic_id, part, uuid, key, payload) SELECT ?, id, ? % partitions, ?, ?, ? FROM leat_topics WHERE name = ?",
				ids[i], h.Sum32(), m.UUID, key, []byte(m.Payload), topic)
			exec(deliver, ids[i])
		}
	}
}
