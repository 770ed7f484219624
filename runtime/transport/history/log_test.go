package history_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/history"
	"github.com/leat-io/leat/runtime/transport/memory"
)

func kinds(events []history.Event) []history.Kind {
	out := make([]history.Kind, len(events))
	for i, e := range events {
		out[i] = e.Kind
	}
	return out
}

func TestLogOutlivesItsProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, err := history.OpenLog(dir, "a")
	require.NoError(t, err)
	_, err = history.OpenLog(dir, "a")
	require.ErrorIs(t, err, os.ErrExist, "two processes of one name")
	read := history.NewDir(dir)
	a.Add(history.Event{Kind: history.Started, ID: "m", Hand: 7, Text: "größe\n"})
	events, err := read.Next()
	require.NoError(t, err)
	require.Len(t, events, 1)
	require.Equal(t, history.Event{At: events[0].At, Proc: "a", Kind: history.Started, ID: "m", Hand: 7, Text: "größe\n"}, events[0])
	require.False(t, events[0].At.IsZero())

	a.Add(history.Event{Kind: history.Done, ID: "m"})
	f, err := os.OpenFile(filepath.Join(dir, "a.history"), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString(`{"At":"2026-`)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	b, err := history.OpenLog(dir, "b")
	require.NoError(t, err)
	b.Add(history.Event{Kind: history.Ended})
	events, err = read.Next()
	require.NoError(t, err, "a torn line is not read yet")
	require.Equal(t, []history.Kind{history.Done, history.Ended}, kinds(events))
	events, err = read.Next()
	require.NoError(t, err)
	require.Empty(t, events)

	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
	require.NoError(t, b.Close())
	b.Add(history.Event{Kind: history.Ended}) // without effect on the file
	require.NoError(t, os.WriteFile(filepath.Join(dir, "c.history"), []byte("garbage\n"), 0o600))
	_, err = read.Next()
	require.ErrorContains(t, err, "c.history")
}

// TestWrap records a whole life: published, handled, failed, buried, acked.
func TestWrap(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l := history.NewLog("p")
	b := memory.NewBroker(memory.Options{})
	tr := history.Wrap(b.Transport(), l)
	require.NoError(t, tr.Declare(ctx, transport.TopologyDeclare, transport.Declaration{Topic: topic, Group: "g"}))
	p, err := tr.OpenProducer(ctx)
	require.NoError(t, err)
	remove := b.Inject(memory.Fault{Op: memory.OpPublish, Err: errors.New("lost"), Times: 1})
	require.Error(t, p.Publish(ctx, topic, message.NewMessage("lost", nil)))
	remove()
	remove = b.Inject(memory.Fault{Op: memory.OpPublish, Err: errors.New("too large"), Permanent: true, Match: func(m *message.Message) bool { return m.UUID == "large" }})
	require.Error(t, p.Publish(ctx, topic, message.NewMessage("m", []byte("x")), message.NewMessage("large", nil)))
	remove()
	require.NoError(t, p.Publish(ctx, topic, message.NewMessage("n", []byte("x"))))
	c, err := tr.OpenConsumer(ctx, transport.ConsumerConfig{
		Name: "c", Topics: []string{topic}, Group: "g", Start: transport.StartEarliest, Topology: transport.TopologyDeclare,
		Prefetch: 10, PrefetchBytes: 1 << 20, Span: 100, Base: ctx,
	})
	require.NoError(t, err)
	var ds []*transport.Delivery
	for len(ds) < 2 {
		more, err := c.Receive(ctx, 10, 1<<20)
		require.NoError(t, err)
		ds = append(ds, more...)
	}
	h := history.Handler(func(m *message.Message) ([]*message.Message, error) {
		if m.UUID == "n" {
			return nil, errors.New("as asked")
		}
		return nil, nil
	}, l)
	for _, d := range ds {
		a := transport.NewAttempt(d, "c", "g", 1, d.FirstFailure)
		_, err := h(a.Message())
		require.Equal(t, d.ID == "n", err != nil)
		outcome := transport.Handled
		if err != nil {
			outcome = transport.Dead
		}
		_, hooks, _ := a.End()
		for _, hook := range hooks {
			require.NoError(t, hook(context.WithoutCancel(ctx), outcome))
		}
		require.NoError(t, c.Settle(ctx, []transport.Settlement{{Delivery: d, Verdict: transport.Ack}}))
	}
	require.NoError(t, c.Close(ctx))
	require.NoError(t, p.Close(ctx))
	require.NoError(t, tr.Close(ctx))

	r := history.Check(l.Events(), history.Options{Topic: topic})
	require.Empty(t, r.Violations, r)
	require.Equal(t, []int{2, 1, 1}, []int{r.Published, r.Handled, r.Buried})
	of := func(id string) []history.Kind {
		var events []history.Event
		for _, e := range l.Events() {
			if e.ID == id {
				events = append(events, e)
			}
		}
		return kinds(events)
	}
	require.Equal(t, []history.Kind{history.Publishing, history.MaybeLost}, of("lost"))
	require.Equal(t, []history.Kind{history.Publishing, history.NotPublished}, of("large"))
	require.Equal(t, []history.Kind{
		history.Publishing, history.Published, history.Delivered, history.Started, history.Done, history.Acking, history.Acked,
	}, of("m"))
	require.Equal(t, []history.Kind{
		history.Publishing, history.Published, history.Delivered, history.Started, history.Failed, history.Buried, history.Acking, history.Acked,
	}, of("n"))
}

func TestBodyOf(t *testing.T) {
	t.Parallel()
	require.NotEqual(t, history.BodyOf(nil), history.BodyOf([]byte{}))
	require.NotEqual(t, history.BodyOf([]byte("a")), history.BodyOf([]byte("b")))
	require.Len(t, history.BodyOf([]byte("a")), 16)
}
