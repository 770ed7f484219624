package sql_test

import (
	stdsql "database/sql"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/sql"
)

// S3: four processes that write all the time, and one that consumes, all get
// their turn. The longest that one publish took is printed.
func TestWriterProcesses(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	require.NoError(t, b.open().Declare(t.Context(), transport.TopologyDeclare, transport.Declaration{Topic: topicName, Group: groupName}))
	procs := b.start("publish 200", "publish 200", "publish 200", "publish 200", "handle")
	for _, p := range procs[:4] {
		require.NoError(t, p.cmd.Wait(), "%s", p.out.String())
		for line := range strings.Lines(p.out.String()) {
			if longest, ok := strings.CutPrefix(line, "longest publish: "); ok {
				t.Log("longest publish of a process:", strings.TrimSpace(longest))
			}
		}
	}
	confirmed := b.log(confirmedLog)
	require.Len(t, confirmed, 4*200)
	require.Eventually(t, func() bool { return len(b.log(handledLog)) == len(confirmed) }, waitFor, tickFor)
	procs[4].kill()
	b.sound(b.path)
}

// S7: a copy of the file and its log is sound at any moment, and a prefix of
// what happened: where all who use it are stopped, and under a read
// transaction, that keeps the log from being begun anew.
func TestCopies(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	require.NoError(t, b.open().Declare(t.Context(), transport.TopologyDeclare, transport.Declaration{Topic: topicName, Group: groupName}))
	procs := b.start("publish", "publish", "handle", "handle")
	for i := range 12 {
		some := len(b.log(handledLog)) + 1 + rand.IntN(300)
		require.Eventually(t, func() bool { return len(b.log(handledLog)) >= some }, waitFor, tickFor)
		copied := filepath.Join(t.TempDir(), "copy.db")
		var done func()
		if i%2 == 0 {
			for _, p := range procs {
				p.stop()
			}
			done = func() {
				for _, p := range procs {
					p.resume()
				}
			}
		} else {
			tx, err := b.raw().BeginTx(t.Context(), nil)
			require.NoError(t, err)
			var n int
			require.NoError(t, tx.QueryRowContext(t.Context(), "SELECT count(*) FROM leat_topics").Scan(&n)) // from here on it reads
			done = func() { require.NoError(t, tx.Rollback()) }
		}
		confirmed := b.log(confirmedLog)
		for _, suffix := range []string{"", "-wal"} { // by others: closing a file here would give up locks
			require.NoError(t, exec.CommandContext(t.Context(), "cp", b.path+suffix, copied+suffix).Run())
		}
		handled, intended := b.log(handledLog), b.log(intendedLog)
		done()
		b.sound(copied)
		stored := storedIDs(t, copied)
		for id := range confirmed {
			require.True(t, stored[id] || handled[id] > 0, "%s was confirmed, and is neither there nor handled", id)
		}
		for id := range stored {
			require.NotZero(t, intended[id], "%s is there, and nobody published it", id)
		}
	}
}

func storedIDs(t *testing.T, path string) map[string]bool {
	t.Helper()
	db, err := stdsql.Open("sqlite", path)
	require.NoError(t, err)
	defer db.Close()
	rows, err := db.QueryContext(t.Context(), "SELECT uuid FROM leat_messages JOIN leat_deliveries USING (topic_id, part, id)")
	require.NoError(t, err)
	defer rows.Close()
	m := map[string]bool{}
	for rows.Next() {
		var id string
		require.NoError(t, rows.Scan(&id))
		m[id] = true
	}
	require.NoError(t, rows.Err())
	return m
}

// S5: the log stays small while publishers and consumers are busy, grows as
// long as somebody reads an old state, and is small again after that.
func TestLogStaysSmall(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tr := b.open(func(o *sql.Options) { o.Synchronous = "normal" }) // the log is the same
	p := produce(t, tr)
	var wg sync.WaitGroup
	consumers := make([]transport.Consumer, 3)
	for i := range consumers {
		consumers[i] = consume(t, tr, func(c *transport.ConsumerConfig) { c.Group = "group" + strconv.Itoa(i) })
	}
	body := strings.Repeat("x", 16<<10)
	var mu sync.Mutex
	largest := int64(0)
	work := func(mib int) {
		n := mib << 10 / 16 // of 16 KiB each
		wg.Go(func() {
			for i := range n {
				if err := p.Publish(t.Context(), topicName, msg(fmt.Sprint(i), "", body)); err != nil {
					t.Error(err)
				}
			}
		})
		for _, c := range consumers {
			wg.Go(func() {
				for left := n; left > 0; {
					ds, err := c.Receive(t.Context(), 20, 1<<20)
					if err != nil {
						t.Error(err)
						return
					}
					left -= len(ds)
					batch := make([]transport.Settlement, len(ds))
					for i, d := range ds {
						batch[i] = transport.Settlement{Delivery: d, Verdict: transport.Ack}
					}
					if err := c.Settle(t.Context(), batch); err != nil {
						t.Error(err)
					}
					mu.Lock()
					largest = max(largest, b.logSize())
					mu.Unlock()
				}
			})
		}
		wg.Wait()
	}
	const limit = 24 << 20
	work(5)
	t.Logf("largest log while busy: %.1f MiB", float64(largest)/(1<<20))
	require.LessOrEqual(t, largest, int64(limit))
	tx, err := b.raw().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	var n int
	require.NoError(t, tx.QueryRowContext(t.Context(), "SELECT count(*) FROM leat_messages").Scan(&n)) // from here on it reads
	work(6)
	t.Logf("log while an old state is read: %.1f MiB", float64(b.logSize())/(1<<20))
	require.Greater(t, b.logSize(), int64(limit), "it has to keep what was there")
	require.NoError(t, tx.QueryRowContext(t.Context(), "SELECT count(*) FROM leat_messages").Scan(&n))
	require.Zero(t, n)
	require.NoError(t, tx.Rollback())
	work(3)
	t.Logf("log after that: %.1f MiB", float64(b.logSize())/(1<<20))
	require.LessOrEqual(t, b.logSize(), int64(limit))
	require.Zero(t, b.count("leat_messages"))
}
