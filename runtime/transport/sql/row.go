package sql

import (
	"context"
	stdsql "database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leat-io/leat/runtime/transport"
)

// row is a message as it was read. One is used for all rows of a result.
type row struct {
	slot      int64
	id        int64
	exists    bool // else there is only a delivery
	published int64
	uuid, key string
	headers   string
	payload   []byte

	head    text
	texts   text
	bytes   blob
	columns []any
}

// text and blob take a column as the driver made it, without a copy: the
// driver makes each anew.
type (
	text string
	blob []byte
)

// Scan is for database/sql.
func (t *text) Scan(v any) error {
	s, ok := v.(string)
	if !ok && v != nil {
		return fmt.Errorf("column is %T, not text", v)
	}
	*t = text(s)
	return nil
}

// Scan is for database/sql. An empty one is not nil.
func (b *blob) Scan(v any) error {
	*b = nil
	if v == nil {
		return nil
	}
	s, ok := v.([]byte)
	if !ok {
		return fmt.Errorf("column is %T, not a blob", v)
	}
	if *b = s; s == nil {
		*b = blob{}
	}
	return nil
}

// scan reads "slot id ", and if there is a message "published length " and as
// many bytes of the id and the rest of the key; then headers and payload.
func (m *row) scan(r *stdsql.Rows) error {
	if m.columns == nil {
		m.columns = []any{&m.head, &m.texts, &m.bytes}
	}
	if err := r.Scan(m.columns...); err != nil {
		return err
	}
	m.headers, m.payload = string(m.texts), m.bytes
	rest := string(m.head)
	number := func() int64 {
		digits, after, _ := strings.Cut(rest, " ")
		rest = after
		n, _ := strconv.ParseInt(digits, 10, 64) // the query made it
		return n
	}
	m.slot, m.id = number(), number()
	if m.exists = rest != ""; m.exists {
		m.published = number()
		n := number()
		m.uuid, m.key = rest[:n], rest[n:]
	}
	return nil
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
		query := "SELECT id, attempts, available_at - ?, coalesce(first_failure, 0), coalesce(last_error, '')" +
			" FROM leat_attempts WHERE topic_id = ? AND group_id = ? AND part IN (" + c.t.d.ids() + ") AND id IN (" + c.t.d.ids() + ")"
		err := look(ctx, c.db, query, []any{c.clock.now(), src.id, src.group, c.t.d.numbers(parts(byID)), c.t.d.numbers(ids)}, func(r *stdsql.Rows) (bool, error) {
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
