package conformance

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/handlers"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/history"
)

// recorded is an instance of which a history is kept, as r.events then has it.
func (r *rig) recorded() (*instance, func(message.HandlerFunc) message.HandlerFunc) {
	r.Helper()
	l := history.NewLog(r.name("worker"))
	r.logs = append(r.logs, l)
	in := r.instance(func(tr transport.Transport) transport.Transport { return history.Wrap(tr, l) })
	return in, func(h message.HandlerFunc) message.HandlerFunc { return history.Handler(h, l) }
}

// events are those of all recorded instances.
func (r *rig) events() []history.Event {
	var all []history.Event
	for _, l := range r.logs {
		all = append(all, l.Events()...)
	}
	return all
}

// insist publishes until everything is confirmed, whatever happens to the
// broker meanwhile. It may be called on any goroutine.
func (r *rig) insist(topic string, msgs ...*message.Message) error {
	ctx, cancel := r.within()
	defer cancel()
	p, err := history.Wrap(r.tr, r.log).OpenProducer(ctx)
	for ; err != nil; p, err = history.Wrap(r.tr, r.log).OpenProducer(ctx) {
		if !r.again(ctx) {
			return fmt.Errorf("open producer: %w", err)
		}
	}
	defer func() { _ = p.Close(ctx) }() // its connection may be broken
	for {
		try, done := context.WithTimeout(ctx, 10*r.o.Quiet)
		err := p.Publish(try, topic, msgs...)
		done()
		if err == nil {
			return nil
		}
		if !r.again(ctx) {
			return fmt.Errorf("publish to %q: %w", topic, err)
		}
	}
}

// again waits before another try; false if there is to be none.
func (r *rig) again(ctx context.Context) bool {
	r.rest(r.o.Quiet / 4)
	return ctx.Err() == nil
}

// endure does something to the broker, so many times, under load: messages of
// several keys are published meanwhile. After each time what is published is
// handled again; at the end every message is, and by the rules.
func (r *rig) endure(rounds int, trouble func()) {
	r.Helper()
	topic, group := r.topic()
	var handled tally
	var ms []*instance
	for range 2 {
		in, recorded := r.recorded()
		ms = append(ms, in.run(topic, group, recorded(func(m *message.Message) ([]*message.Message, error) {
			err := work(m, time.Millisecond)
			if err == nil {
				handled.add(m)
			}
			return nil, err
		}), limits(16, 64)))
	}
	r.hurt = true
	total := 0
	load := func(from string) {
		for n := range 5 {
			if err := r.insist(topic, prefixed(fmt.Sprintf("%s-%d-", from, n), keyed(8, 3))...); err != nil {
				r.Errorf("%v", err)
				return
			}
		}
	}
	for round := range rounds {
		total += 5 * 8 * 3
		published := make(chan struct{})
		go func() {
			defer close(published)
			load(fmt.Sprint("m", round))
		}()
		r.log.Add(history.Event{Kind: history.Fault, Text: fmt.Sprint("round ", round)})
		trouble()
		<-published
		r.eventually("consumption is back", func() bool { return handled.count() >= total }, func() any {
			return fmt.Sprintf("%d of %d handled: %+v and %+v", handled.count(), total, ms[0].status(), ms[1].status())
		})
		r.log.Add(history.Event{Kind: history.Healed})
	}
	r.exhausted(topic, group)
	for _, in := range ms {
		require.NoError(r, in.drain(), "drain")
		require.Zero(r, in.count(transport.Dead), "trouble of the broker is no failure of a message")
		require.Zero(r, in.count(transport.Retried), "trouble of the broker is no failure of a message")
	}
	report := r.judge(topic, r.events(), history.Options{})
	require.Equal(r, total, report.Handled, "%v", report)
	r.Logf("%v", report)
	r.nothingLeft(topic, group)
}

func prefixed(prefix string, msgs []*message.Message) []*message.Message {
	for _, m := range msgs {
		m.UUID = prefix + m.UUID
		m.Metadata[transport.KeyHeader] = prefix + m.Metadata[transport.KeyHeader]
	}
	return msgs
}

// linkDown: links that break lose nothing.
func linkDown(r *rig) {
	r.endure(r.o.scale(2, 4, 30), func() {
		r.broker.Link.Cut()
		r.rest(2 * r.o.Quiet)
		r.broker.Link.Heal()
	})
}

// slowLink: neither does one that is slow.
func slowLink(r *rig) {
	r.endure(1, func() {
		r.broker.Link.Latency(r.o.Quiet / 4)
		r.rest(2 * r.o.Quiet)
		r.broker.Link.Latency(0)
	})
}

// halfOpen: nor does one that lets nothing through for a while, as short as
// nobody notices and as long as others take over.
func halfOpen(r *rig) {
	for _, d := range []time.Duration{2 * r.o.Quiet, r.o.Takeover + r.o.Takeover/2} {
		r.endure(1, func() {
			r.broker.Link.Stall()
			r.rest(d)
			r.broker.Link.Resume()
		})
	}
}

// frozen: nor does a broker that stands still.
func frozen(r *rig) {
	r.endure(r.o.scale(1, 2, 10), func() {
		thaw := r.broker.Freeze(r.TB)
		r.rest(r.o.Takeover + r.o.Takeover/2)
		thaw()
	})
}

// disconnects: nor one whose administrator ends all connections, over and over.
func disconnects(r *rig) {
	r.endure(r.o.scale(1, 2, 20), func() {
		for range 4 {
			r.broker.Disconnect(r.TB)
			r.rest(r.o.Quiet)
		}
	})
}

// denied: nor one that takes a right away and gives it back. What was ready
// goes on being so.
func denied(r *rig) {
	r.endure(1, func() {
		allow := r.broker.Deny(r.TB)
		r.rest(2 * r.o.Quiet)
		allow()
	})
}

// downAtStart: a worker that finds no broker waits for it, and works then.
func downAtStart(r *rig) {
	topic, group := r.topic()
	msgs := unkeyed("m", 20)
	r.publish(topic, msgs...)
	r.hurt = true
	l := newLedger(r)
	r.broker.Link.Cut()
	in := r.instance()
	in.consume("c", topic, group, l.noting(ok))
	in.launch()
	select {
	case <-in.router.Ready():
		require.FailNow(r, "ready without a broker")
	case err := <-in.ended:
		in.stop = nil
		require.FailNow(r, "the worker has ended since the broker was away", "%v", err)
	case <-time.After(5 * r.o.Quiet):
	}
	r.broker.Link.Heal()
	in.ready()
	l.awaitDone(len(msgs))
	in.stopped()
	l.onceEach(ids(msgs))
	r.nothingLeft(topic, group)
}

// rebalanced: members that come and go under load keep the order of keys, and
// nothing runs twice by it.
func rebalanced(r *rig) {
	topic, group := r.topic()
	var handled tally
	member := func() *instance {
		in, recorded := r.recorded()
		return in.run(topic, group, recorded(func(m *message.Message) ([]*message.Message, error) {
			if err := work(m, time.Millisecond); err != nil {
				return nil, err
			}
			handled.add(m)
			return nil, nil
		}), byKey, limits(8, 64))
	}
	stays := member()
	rounds := r.o.scale(2, 5, 60)
	const keys, each = 20, 10
	total := 0
	for round := range rounds {
		for n := range 3 {
			r.publish(topic, prefixed(fmt.Sprintf("%d-%d-", round, n), keyed(keys, each))...)
		}
		total += 3 * keys * each
		in := member()
		r.eventually("messages are handled", func() bool { return handled.count() >= total-2*keys*each }, func() any { return stays.router.Status() })
		in.stopped()
	}
	r.eventually("all messages are handled", func() bool { return handled.count() >= total }, func() any { return stays.router.Status() })
	stays.stopped()
	report := r.judge(topic, r.events(), history.Options{Ordered: true})
	require.Equal(r, total, report.Handled)
	r.nothingLeft(topic, group)
}

// contention: many members that take, settle and publish at the same time do
// not hold each other up.
func contention(r *rig) {
	const members = 8
	topic, group := r.topic()
	to := r.name("emitted")
	r.declare(transport.Declaration{Topic: to, Group: "reader-" + group})
	var handled tally
	var ms []*instance
	for range members {
		in, recorded := r.recorded()
		ms = append(ms, in.run(topic, group, recorded(func(m *message.Message) ([]*message.Message, error) {
			handled.add(m)
			return nil, handlers.Emit(m.Context(), to, "from "+m.UUID)
		}), limits(8, 32)))
	}
	n := r.o.scale(600, 1000, 20_000)
	var published []*message.Message
	for i := range 4 {
		msgs := unkeyed(fmt.Sprint("m", i), n/4)
		r.publish(topic, msgs...)
		published = append(published, msgs...)
	}
	r.eventually("all messages are handled", func() bool { return handled.count() >= n }, func() any { return handled.count() })
	for _, in := range slices.Backward(ms) {
		in.stopped()
	}
	report := r.judge(topic, r.events(), history.Options{})
	require.Equal(r, len(published), report.Handled)
	require.Zero(r, report.Repeats, "%v", report)
	r.read(to, "reader-"+group, n)
	r.nothingLeft(topic, group)
}
