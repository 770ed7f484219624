package sql

import (
	"context"
	stdsql "database/sql"
	"errors"

	"github.com/leat-io/leat/runtime/transport"
)

// These bound one INSERT, whose text grows with its rows. Bytes may take two
// characters each.
const (
	rowsMySQL  = 500
	bytesMySQL = 4 << 20
	charsMySQL = 3
	argsMySQL  = 4 // of a row
)

// insert publishes to one topic after the other, in one transaction. If one of
// them has another generation by now, it is all done again.
func (d mysql) insert(ctx context.Context, p *producer, next func() []*publication) (map[string]error, error) {
	batch := next()
	for range staleTries {
		missing := map[string]error{}
		topics := map[string]audience{}
		var order []string
		for _, pub := range batch {
			if _, ok := topics[pub.topic]; ok || missing[pub.topic] != nil {
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
			topics[pub.topic] = tp
			order = append(order, pub.topic)
		}
		stale := ""
		err := p.db.InTx(ctx, func(tx *stdsql.Tx) error {
			stale = ""
			for _, name := range order {
				h, ok, err := atGate(ctx, p.db, tx, topics[name].topic, topics[name].gen)
				if err != nil {
					return err
				}
				if !ok {
					stale = name
					return errStale
				}
				if err := d.insertTopic(ctx, p, tx, topics[name], h, batch); err != nil {
					return err
				}
			}
			return nil
		})
		if !errors.Is(err, errStale) {
			return missing, err
		}
		delete(p.topics, stale)
	}
	return nil, errStale
}

func (d mysql) insertTopic(ctx context.Context, p *producer, tx *stdsql.Tx, tp audience, h here, batch []*publication) error {
	n := 0
	for _, pub := range batch {
		if pub.topic == tp.name {
			n += len(pub.msgs)
		}
	}
	n = min(n, rowsMySQL)
	w := &writerMySQL{db: p.db, tx: tx, topic: tp, here: h, parts: make([]int64, 0, n), args: make([]any, 0, argsMySQL*n)}
	for _, pub := range batch {
		if pub.topic != tp.name {
			continue
		}
		for _, m := range pub.msgs {
			if err := w.add(ctx, p.partition(m.key, tp.partitions), m.id, m.key, m.headers, m.payload); err != nil {
				return err
			}
		}
	}
	return w.flush(ctx)
}

// writerMySQL writes messages and their deliveries, some at a time.
type writerMySQL struct {
	db    *database
	tx    *stdsql.Tx
	topic audience
	here

	text  []byte // the INSERT of messages; numbers as they are, the rest is in args
	parts []int64
	args  []any
	bytes int
}

func (w *writerMySQL) add(ctx context.Context, part int64, id, key string, headers, payload []byte) error {
	size := len(id) + len(key) + len(headers) + len(payload)
	if len(w.parts) == rowsMySQL || len(w.parts) > 0 && w.bytes+size > min(bytesMySQL, w.topic.packet/charsMySQL) {
		if err := w.flush(ctx); err != nil {
			return err
		}
	}
	if len(w.parts) == 0 {
		w.text = append(w.text[:0], "INSERT INTO "+w.db.Table("leat_messages")+" (topic_id, gen, part, published_at, uuid, `key`, headers, payload) VALUES "...)
	} else {
		w.text = append(w.text, ',')
	}
	w.text = appendNumbers(append(w.text, '('), w.topic.id, w.topic.gen, part, w.now)
	w.text = append(w.text, ",?,?,?,?)"...)
	w.parts = append(w.parts, part)
	w.bytes += size
	w.args = append(w.args, exact(id), exact(key), headers, payload) // argsMySQL
	return nil
}

// flush relies on this: the ids of one INSERT that names its rows are given
// out together, each so much above the one before as the server says.
func (w *writerMySQL) flush(ctx context.Context) error {
	if len(w.parts) == 0 {
		return nil
	}
	res, err := w.tx.ExecContext(ctx, string(w.text), w.args...)
	if err != nil {
		return err
	}
	id, err := res.LastInsertId()
	if err != nil {
		return err
	}
	w.text = append(w.text[:0], "INSERT INTO "+w.db.Table("leat_deliveries")+" (topic_id, group_id, part, id) VALUES "...)
	for i, part := range w.parts {
		for j, group := range w.topic.groups {
			if i+j > 0 {
				w.text = append(w.text, ',')
			}
			w.text = append(appendNumbers(append(w.text, '('), w.topic.id, group, part, id+int64(i)*w.step), ')')
		}
	}
	w.parts, w.args, w.bytes = w.parts[:0], w.args[:0], 0
	if len(w.topic.groups) == 0 {
		return nil
	}
	_, err = w.tx.ExecContext(ctx, string(w.text))
	return err
}
