package sql_test

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/sql"
)

const (
	topicName = "orders"
	groupName = "charge"
	lease     = time.Second
	waitFor   = 20 * time.Second
	tickFor   = 5 * time.Millisecond
)

// broker is one fresh file.
type broker struct {
	t    *testing.T
	path string
}

func newBroker(t *testing.T) *broker {
	t.Helper()
	return &broker{t: t, path: filepath.Join(t.TempDir(), "worker.db")}
}

// open makes a transport, as another worker would.
func (b *broker) open(opts ...func(*sql.Options)) *sql.Transport {
	b.t.Helper()
	o := sql.Options{Path: b.path, Poll: 20 * time.Millisecond}
	for _, opt := range opts {
		opt(&o)
	}
	tr, err := sql.OpenSQLite(o)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { require.NoError(b.t, tr.Close(context.WithoutCancel(b.t.Context()))) })
	return tr
}

// elsewhere opens the file as another process does: with connections of its
// own, and no wake-ups but by polling.
func (b *broker) elsewhere(opts ...func(*sql.Options)) *sql.Transport {
	b.t.Helper()
	return b.open(append(opts, func(o *sql.Options) { o.Synchronous = "normal" })...)
}

// briefly has leases short enough to wait for their end.
func briefly(o *sql.Options) { o.Lease = lease }

// raw is another program's connection.
func (b *broker) raw() *stdsql.DB {
	b.t.Helper()
	db := b.connect()
	b.t.Cleanup(func() { require.NoError(b.t, db.Close()) })
	return db
}

func (b *broker) connect() *stdsql.DB {
	b.t.Helper()
	db, err := stdsql.Open("sqlite", b.path+"?_pragma=busy_timeout(5000)")
	require.NoError(b.t, err)
	db.SetMaxOpenConns(1)
	return db
}

func (b *broker) count(table string) int {
	b.t.Helper()
	db := b.connect()
	defer db.Close()
	var n int
	require.NoError(b.t, db.QueryRowContext(b.t.Context(), "SELECT count(*) FROM "+table).Scan(&n))
	return n
}

// logSize is how large the write-ahead log is.
func (b *broker) logSize() int64 {
	b.t.Helper()
	info, err := os.Stat(b.path + "-wal")
	require.NoError(b.t, err)
	return info.Size()
}

// sound checks a database file, this one or a copy.
func (b *broker) sound(path string) {
	b.t.Helper()
	db, err := stdsql.Open("sqlite", path+"?_pragma=busy_timeout(5000)")
	require.NoError(b.t, err)
	defer db.Close()
	var ok string
	require.NoError(b.t, db.QueryRowContext(b.t.Context(), "PRAGMA integrity_check").Scan(&ok))
	require.Equal(b.t, "ok", ok)
}

func config(change ...func(*transport.ConsumerConfig)) transport.ConsumerConfig {
	cfg := transport.ConsumerConfig{
		Name: "charge", Topics: []string{topicName}, Group: groupName, Start: transport.StartEarliest,
		Topology: transport.TopologyDeclare, Prefetch: 1000, PrefetchBytes: 1 << 20, Base: context.Background(),
		Instance: transport.Instance{ID: fmt.Sprint("i", time.Now().UnixNano())},
	}
	for _, fn := range change {
		fn(&cfg)
	}
	return cfg
}

func consume(t *testing.T, tr *sql.Transport, change ...func(*transport.ConsumerConfig)) transport.Consumer {
	t.Helper()
	c, err := tr.OpenConsumer(t.Context(), config(change...))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.WithoutCancel(t.Context()))) })
	return c
}

func produce(t *testing.T, tr *sql.Transport) transport.Producer {
	t.Helper()
	p, err := tr.OpenProducer(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close(context.WithoutCancel(t.Context()))) })
	return p
}

func msg(id, key, body string) *message.Message {
	m := message.NewMessage(id, []byte(body))
	if key != "" {
		m.Metadata.Set(transport.KeyHeader, key)
	}
	return m
}

// publish writes n messages with ids prefix-0… and keys of their own.
func publish(t *testing.T, p transport.Producer, prefix string, n int) {
	t.Helper()
	msgs := make([]*message.Message, n)
	for i := range msgs {
		id := fmt.Sprintf("%s-%d", prefix, i)
		msgs[i] = msg(id, id, "body of "+id)
	}
	require.NoError(t, p.Publish(t.Context(), topicName, msgs...))
}

// receive gets exactly n deliveries, and fails if they do not come.
func receive(t *testing.T, c transport.Consumer, n int) []*transport.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var all []*transport.Delivery
	for len(all) < n {
		ds, err := c.Receive(ctx, n-len(all), 1<<20)
		require.NoError(t, err, "%d of %d received", len(all), n)
		require.NotEmpty(t, ds)
		all = append(all, ds...)
	}
	return all
}

// quiet checks that nothing comes for a while.
func quiet(t *testing.T, c transport.Consumer, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	ds, err := c.Receive(ctx, 100, 1<<20)
	require.ErrorIs(t, err, context.DeadlineExceeded, "%d came", len(ds))
}

func settle(t *testing.T, c transport.Consumer, v transport.Verdict, ds ...*transport.Delivery) {
	t.Helper()
	batch := make([]transport.Settlement, len(ds))
	for i, d := range ds {
		batch[i] = transport.Settlement{Delivery: d, Verdict: v}
	}
	require.NoError(t, c.Settle(t.Context(), batch))
}

func ids(ds []*transport.Delivery) map[string]int {
	m := map[string]int{}
	for _, d := range ds {
		m[d.ID]++
	}
	return m
}

func isDone(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
