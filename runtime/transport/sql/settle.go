package sql

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/leat-io/leat/runtime/transport"
)

// work is what a batch of settlements comes to for one spell.
type work struct {
	s       *spell
	acks    []int64
	states  []transport.Settlement // of Delay and Record
	gone    []int64                // ids that are not ready any more: acked or delayed
	release []int64
}

// Settle writes a transaction for each topic of the batch. What is not ours any
// more, by the epochs that this transaction sees, changes nothing.
func (c *consumer) Settle(ctx context.Context, batch []transport.Settlement) error {
	ours, err := c.ours(batch)
	if err != nil {
		return err
	}
	works := map[*spell]*work{}
	writes := map[*source]bool{}
	for _, st := range ours {
		s := spellOf(st.Delivery)
		w := works[s]
		if w == nil {
			w = &work{s: s}
			works[s] = w
		}
		writes[s.src] = w.add(st) || writes[s.src]
	}
	for _, src := range c.sources {
		var ws []*work
		for s, w := range works {
			if s.src == src {
				ws = append(ws, w)
			}
		}
		if len(ws) == 0 {
			continue
		}
		slices.SortFunc(ws, func(a, b *work) int { return cmp.Compare(a.s.part, b.s.part) }) // locks are taken in this order
		var lost []*spell
		if writes[src] {
			if lost, err = c.t.d.settle(ctx, c, src, ws); err != nil {
				return refuse(c.db.Explain(err))
			}
		}
		c.forget(ws)
		if len(lost) > 0 {
			c.lose(func(s *spell) bool { return slices.Contains(lost, s) })
		}
	}
	return nil
}

// ours leaves out what is not ours to tell any more: of a spell that is over,
// or settled before, in this batch too. Only a record is followed by more.
func (c *consumer) ours(batch []transport.Settlement) ([]transport.Settlement, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ours := make([]transport.Settlement, 0, len(batch))
	type message struct {
		s  *spell
		id int64
	}
	settled := make(map[message]bool, len(batch))
	for _, st := range batch {
		if st.Verdict < transport.Ack || st.Verdict > transport.Record {
			return nil, fmt.Errorf("settle %s: verdict %d is not known", st.Delivery.Coordinates(), st.Verdict)
		}
		m := message{spellOf(st.Delivery), st.Delivery.Offset}
		if !m.s.a.Revoked() && m.s.holds(m.id) && !settled[m] {
			ours = append(ours, st)
			settled[m] = st.Verdict != transport.Record
		}
	}
	return ours, nil
}

// add sorts one settlement in, and tells whether it writes anything.
func (w *work) add(st transport.Settlement) bool {
	id := st.Delivery.Offset
	switch st.Verdict {
	case transport.Ack:
		w.acks = append(w.acks, id)
		w.gone = append(w.gone, id)
	case transport.Delay:
		w.states = append(w.states, st)
		w.gone = append(w.gone, id)
	case transport.Record:
		w.states = append(w.states, st)
	case transport.Release:
		w.release = append(w.release, id)
		return false
	}
	return true
}

// forget lets go of what is settled, after the commit.
func (c *consumer) forget(works []*work) {
	now := time.Now()
	released, due := false, false
	c.mu.Lock()
	for _, w := range works {
		s := w.s
		s.drop(w.gone, c.scanning)
		for _, id := range w.release {
			if !s.holds(id) {
				continue
			}
			delete(s.held, id)
			s.lookBack(id)
			released = true
		}
		for _, st := range w.states {
			s.failed = true
			if st.Verdict == transport.Delay {
				s.src.dueBy(now.Add(st.After))
				due = true
			}
		}
		due = due || (!s.leaveBy.IsZero() && s.outstanding() == 0)
	}
	c.mu.Unlock()
	if released {
		poke(c.look)
	}
	if due {
		poke(c.act)
	}
}
