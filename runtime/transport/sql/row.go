package sql

import (
	"context"
	stdsql "database/sql"
	"slices"
	"time"

	"github.com/leat-io/leat/runtime/transport"
)

// row is a message as it was read. One is used for all rows of a result.
type row struct {
	slot      int
	id        int64
	exists    bool // else there is only a delivery
	published int64
	uuid, key string
	headers   string
	payload   []byte
}

// fill makes a delivery of it.
func (m *row) fill(d *transport.Delivery, s *spell) {
	*d = transport.Delivery{
		ID: m.uuid, Payload: m.payload, Headers: decodeHeaders(m.headers, m.key),
		Topic: s.src.name, Partition: s.part, Offset: m.id, Key: m.key,
		Enqueued: time.UnixMicro(m.published), Assignment: s.a, Tag: s,
	}
	if d.ID == "" {
		d.ID = d.Coordinates() + "@" + s.src.uid
	}
}

func spellOf(d *transport.Delivery) *spell { return d.Tag.(*spell) }

// attempts adds what is known of earlier failures.
func (c *consumer) attempts(ctx context.Context, ds []*transport.Delivery) error {
	bySource := map[*source]map[int64]*transport.Delivery{}
	c.mu.Lock()
	for _, d := range ds {
		if s := spellOf(d); s.failed {
			if bySource[s.src] == nil {
				bySource[s.src] = map[int64]*transport.Delivery{}
			}
			bySource[s.src][d.Offset] = d
		}
	}
	c.mu.Unlock()
	for src, byID := range bySource {
		ids := make([]int64, 0, len(byID))
		for id := range byID {
			ids = append(ids, id)
		}
		query := "SELECT id, attempts, available_at - ?, coalesce(first_failure, 0), last_error" +
			" FROM leat_attempts WHERE topic_id = ? AND group_id = ? AND " + c.t.d.in("part") + " AND " + c.t.d.in("id")
		err := c.db.look(ctx, query, []any{c.clock.now(), src.id, src.group, c.t.d.numbers(parts(byID)), c.t.d.numbers(ids)}, func(r *stdsql.Rows) (bool, error) {
			var id, wait, first int64
			var attempts int
			var class []byte
			if err := r.Scan(&id, &attempts, &wait, &first, &class); err != nil {
				return false, err
			}
			d := byID[id]
			d.Attempts, d.LastError = attempts, string(class)
			d.Redelivered = true
			if first > 0 {
				d.FirstFailure = time.UnixMicro(first)
			}
			if wait > 0 {
				d.NotBefore = time.Now().Add(time.Duration(wait) * time.Microsecond)
			}
			return true, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func parts(byID map[int64]*transport.Delivery) []int64 {
	var ps []int64
	for _, d := range byID {
		if p := int64(d.Partition); !slices.Contains(ps, p) {
			ps = append(ps, p)
		}
	}
	return ps
}

// own copies a message out of what the driver has lent.
func (m *row) own(id, key, headers, payload []byte) {
	all := make([]byte, 0, len(id)+len(key)+len(headers))
	all = append(append(append(all, id...), key...), headers...)
	texts := string(all)
	m.uuid, texts = texts[:len(id)], texts[len(id):]
	m.key, m.headers = texts[:len(key)], texts[len(key):]
	m.payload = nil
	if payload != nil {
		m.payload = make([]byte, len(payload))
		copy(m.payload, payload)
	}
}
