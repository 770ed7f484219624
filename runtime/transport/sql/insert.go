package sql

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"unicode/utf8"

	"github.com/leat-io/leat/runtime/transport"
)

const insertRows = 50 // of one INSERT

// insert writes messages, then their deliveries.
func (sqlite) insert(ctx context.Context, p *producer, next func() []*publication) (missing map[string]error, err error) {
	err = p.db.InTx(ctx, func(tx *stdsql.Tx) error {
		missing, err = p.insert(context.WithoutCancel(ctx), tx, next())
		return err
	})
	return missing, err
}

func (p *producer) insert(ctx context.Context, tx *stdsql.Tx, batch []*publication) (map[string]error, error) {
	var now int64
	if err := p.db.first(ctx, tx, "SELECT "+p.t.d.clock(), nil, &now); err != nil {
		return nil, err
	}
	topics, missing := map[string]topic{}, map[string]error{}
	var args []any
	lowest, highest, rows := int64(0), int64(0), 0
	flush := func() error {
		if rows == 0 {
			return nil
		}
		id, err := p.insertRows(ctx, tx, rows, args)
		if lowest == 0 {
			lowest = id - int64(rows) + 1
		}
		highest, rows, args = id, 0, args[:0]
		return err
	}
	for _, pub := range batch {
		tp, ok := topics[pub.topic]
		if !ok && missing[pub.topic] == nil {
			var err error
			if tp, err = p.topic(ctx, tx, pub.topic); errors.Is(err, errMissing) {
				missing[pub.topic] = transport.Refuse(err)
			} else if err != nil {
				return nil, err
			}
			topics[pub.topic] = tp
		}
		if missing[pub.topic] != nil {
			continue
		}
		for _, m := range pub.msgs {
			args = append(args, tp.id, p.partition(m.key, tp.partitions), exact(m.id), exact(m.key), textOf(m.headers), payload(m.payload), now)
			if rows++; rows == insertRows {
				if err := flush(); err != nil {
					return nil, err
				}
			}
		}
	}
	if err := flush(); err != nil || lowest == 0 {
		return missing, err
	}
	_, err := p.db.exec(ctx, tx, insertDeliveries, lowest, highest)
	return missing, err
}

// insertDeliveries takes the ids of one transaction, which are a range: nobody
// else writes meanwhile.
const insertDeliveries = `INSERT INTO leat_deliveries (topic_id, group_id, part, id)
 SELECT m.topic_id, g.id, m.part, m.id FROM leat_messages m JOIN leat_groups g ON g.topic_id = m.topic_id
 WHERE m.id BETWEEN ? AND ?`

func (p *producer) insertRows(ctx context.Context, tx *stdsql.Tx, rows int, args []any) (int64, error) {
	const row = "(?, ?, ?, ?, ?, ?, ?)"
	query := "INSERT INTO leat_messages (topic_id, part, uuid, key, headers, payload, published_at) VALUES " + strings.Repeat(row+", ", rows-1) + row
	res, err := p.db.exec(ctx, tx, query, args...)
	if err != nil {
		return 0, err
	}
	return res.LastInsertId()
}

func (p *producer) topic(ctx context.Context, tx *stdsql.Tx, name string) (topic, error) {
	tp := topic{name: name}
	err := p.db.first(ctx, tx, "SELECT id, partitions FROM leat_topics WHERE name = ?", []any{name}, &tp.id, &tp.partitions)
	switch {
	case err != nil || tp.id != 0:
		return tp, err
	case p.t.creates():
		return p.t.declareTopic(ctx, p.db, tx, transport.Declaration{Topic: name})
	default:
		return tp, fmt.Errorf("topic %q %w", name, errMissing)
	}
}

// spread is the partition of the last message without a key.
type spread struct{ last uint32 }

// partition is FNV-1a of the key, 32 bits, modulo the number of partitions;
// without a key, each in turn. It is part of the format.
func (s *spread) partition(key string, partitions int) int64 {
	if key == "" {
		s.last++
		return int64(s.last) % int64(partitions)
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(key)) // never fails
	return int64(h.Sum32()) % int64(partitions)
}

// exact stores a string so that it comes back byte by byte; empty is NULL.
func exact(s string) any {
	switch {
	case s == "":
		return nil
	case utf8.ValidString(s):
		return s
	default:
		return []byte(s)
	}
}

// textOf stores headers as text where they are JSON, so that people can read them.
func textOf(headers []byte) any {
	if len(headers) > 0 && headers[0] != binaryHeaders {
		return string(headers)
	}
	return payload(headers)
}

// payload keeps nil and empty apart.
func payload(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}
