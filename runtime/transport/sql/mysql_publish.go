package sql

import (
	"context"
	stdsql "database/sql"
	"errors"
	"slices"
	"strconv"

	"github.com/leat-io/leat/runtime/transport"
)

// These bound one INSERT, whose text grows with its rows, and a script. Bytes
// may take two characters each.
const (
	rowsMySQL  = 500
	bytesMySQL = 4 << 20
	charsMySQL = 3
	argsMySQL  = 4  // of a row
	quoteMySQL = 10 // characters that each takes beside its bytes
)

// insert publishes in one transaction of two round trips: the first shares the
// gates, the second writes and commits. If a topic has another generation by
// now, it is all done again.
func (d mysql) insert(ctx context.Context, p *producer, next func() []*publication) (map[string]error, error) {
	batch := next()
	n := 0
	for _, pub := range batch {
		n += len(pub.msgs)
	}
	n = min(n, rowsMySQL)
	for range staleTries {
		missing := map[string]error{}
		var topics []audience
		for _, pub := range batch {
			if missing[pub.topic] != nil || slices.ContainsFunc(topics, func(tp audience) bool { return tp.name == pub.topic }) {
				continue
			}
			tp, err := p.audience(ctx, pub.topic)
			if errors.Is(err, errMissing) {
				missing[pub.topic] = transport.Refuse(err)
				continue
			}
			if err != nil {
				return nil, err
			}
			topics = append(topics, tp)
		}
		if len(topics) == 0 {
			return missing, nil
		}
		var at []here
		var stale []string
		err := p.db.InScripts(ctx, func(conn *stdsql.Conn) (err error) {
			if at, stale, err = atGates(ctx, p.db, conn, "START TRANSACTION", topics); err == nil && len(stale) > 0 {
				err = errStale
			}
			return err
		}, func(conn *stdsql.Conn) error {
			w := &writerMySQL{db: p.db, conn: conn, parts: make([]int64, 0, n), args: make([]any, 0, argsMySQL*n)}
			for i, tp := range topics {
				w.topic, w.here = tp, at[i]
				if err := d.insertTopic(ctx, p, w, batch); err != nil {
					return err
				}
			}
			return w.commit(ctx)
		})
		if !errors.Is(err, errStale) {
			return missing, err
		}
		for _, name := range stale {
			delete(p.topics, name)
		}
	}
	return nil, errStale
}

func (d mysql) insertTopic(ctx context.Context, p *producer, w *writerMySQL, batch []*publication) error {
	for _, pub := range batch {
		if pub.topic != w.topic.name {
			continue
		}
		for _, m := range pub.msgs {
			if err := w.add(ctx, p.partition(m.key, w.topic.partitions), m); err != nil {
				return err
			}
		}
	}
	return w.flush(ctx)
}

// writerMySQL writes messages and their deliveries, as many statements in one
// script as go into a packet.
type writerMySQL struct {
	db    *database
	conn  *stdsql.Conn
	topic audience
	here

	script []byte // what is not sent; numbers as they are, the rest is in args
	args   []any
	bytes  int     // of args
	parts  []int64 // of the messages of the INSERT that the script ends with
	size   int     // of those
}

// room is how many bytes go into a script, unless one message has more: a longer
// one would be prepared, which several statements cannot be.
func (w *writerMySQL) room() int { return min(bytesMySQL, w.packet/charsMySQL) }

// full tells whether so many bytes more are too many.
func (w *writerMySQL) full(more int) bool { return len(w.script)+w.bytes+more > w.room() }

func (w *writerMySQL) add(ctx context.Context, part int64, m outgoing) error {
	size := len(m.id) + len(m.key) + len(m.headers) + len(m.payload) + argsMySQL*quoteMySQL
	if len(w.parts) == rowsMySQL || len(w.parts) > 0 && w.full(size) {
		if err := w.flush(ctx); err != nil {
			return err
		}
	}
	if len(w.parts) == 0 {
		if w.full(size) {
			if err := w.send(ctx); err != nil {
				return err
			}
		}
		w.begin("INSERT INTO " + w.db.Table("leat_messages") + " (topic_id, gen, part, published_at, uuid, `key`, headers, payload) VALUES ")
	} else {
		w.script = append(w.script, ',')
	}
	w.script = appendNumbers(append(w.script, '('), w.topic.id, w.topic.gen, part, w.now)
	w.script = append(w.script, ",?,?,?,?)"...)
	w.parts, w.size, w.bytes = append(w.parts, part), w.size+size, w.bytes+size
	w.args = append(w.args, exact(m.id), exact(m.key), m.headers, m.payload) // argsMySQL
	return nil
}

func (w *writerMySQL) begin(statement string) {
	if len(w.script) > 0 {
		w.script = append(w.script, "; "...)
	}
	w.script = append(w.script, statement...)
}

// flush ends an INSERT of messages, and adds that of their deliveries. It relies
// on this: the ids of one INSERT that names its rows are given out together,
// each so much above the one before as the server says. A message that is larger
// than the room is sent by itself, which the driver can do without escaping it.
func (w *writerMySQL) flush(ctx context.Context) error {
	if w.size > w.room() {
		if err := w.send(ctx); err != nil {
			return err
		}
	}
	first := true
	for i, part := range w.parts {
		for _, group := range w.topic.groups {
			if w.full(0) {
				if err := w.send(ctx); err != nil {
					return err
				}
				first = true
			}
			if first {
				w.begin("INSERT INTO " + w.db.Table("leat_deliveries") + " (topic_id, group_id, part, id) VALUES ")
				first = false
			} else {
				w.script = append(w.script, ',')
			}
			w.script = appendNumbers(append(w.script, '('), w.topic.id, group, part)
			w.script = append(strconv.AppendInt(append(w.script, ",LAST_INSERT_ID()+"...), int64(i)*w.step, 10), ')')
		}
	}
	w.parts, w.size = w.parts[:0], 0
	return nil
}

func (w *writerMySQL) send(ctx context.Context) error {
	if len(w.script) == 0 {
		return nil
	}
	_, err := w.conn.ExecContext(ctx, string(w.script), w.args...)
	w.script, w.args, w.bytes = w.script[:0], w.args[:0], 0
	return err
}

func (w *writerMySQL) commit(ctx context.Context) error {
	w.begin("COMMIT")
	return w.send(ctx)
}
