package sql

import (
	"context"
	stdsql "database/sql"
	"slices"
	"time"

	"github.com/leat-io/leat/runtime/transport"
)

// row is a message as it was read.
type row struct {
	slot               int
	id                 int64
	uuid, key, headers []byte
	payload            []byte
	null               stdsql.NullBool
	published          stdsql.NullInt64
}

func (m *row) scan(r *stdsql.Rows) error {
	return r.Scan(&m.slot, &m.id, &m.uuid, &m.key, &m.headers, &m.payload, &m.null, &m.published)
}

func (m *row) delivery(s *spell) *transport.Delivery {
	d := &transport.Delivery{
		ID: string(m.uuid), Payload: m.payload, Headers: decodeHeaders(m.headers, m.key),
		Topic: s.src.name, Partition: s.part, Offset: m.id, Key: string(m.key),
		Enqueued: time.UnixMicro(m.published.Int64), Assignment: s.a, Tag: s,
	}
	if d.Payload == nil && !m.null.Bool {
		d.Payload = []byte{}
	}
	if d.ID == "" {
		d.ID = d.Coordinates() + "@" + s.src.uid
	}
	return d
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
		query := "SELECT id, attempts, available_at - " + c.t.d.clock() + ", coalesce(first_failure, 0), coalesce(last_error, '')" +
			" FROM leat_attempts WHERE topic_id = ? AND group_id = ? AND part IN (" + c.t.d.ids() + ") AND id IN (" + c.t.d.ids() + ")"
		err := look(ctx, c.db, query, []any{src.id, src.group, c.t.d.numbers(parts(byID)), c.t.d.numbers(ids)}, func(r *stdsql.Rows) (bool, error) {
			var id, wait, first int64
			var attempts int
			var class string
			if err := r.Scan(&id, &attempts, &wait, &first, &class); err != nil {
				return false, err
			}
			d := byID[id]
			d.Attempts, d.LastError = attempts, class
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
