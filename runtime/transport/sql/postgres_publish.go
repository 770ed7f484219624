package sql

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/leat-io/leat/runtime/transport"
)

// insertPostgres writes messages with a delivery for each group, if the topic
// is of the generation still that its publisher knows.
const insertPostgres = `WITH m AS (INSERT INTO leat_messages (topic_id, gen, part, uuid, key, headers, payload)
  SELECT ?1, ?2, u.part, u.uuid, u.key, u.headers, u.payload FROM unnest(?3::int2[], ?4::bytea[], ?5::bytea[], ?6::bytea[], ?7::bytea[]) u(part, uuid, key, headers, payload)
  WHERE (SELECT gen FROM leat_topics WHERE id = ?1) = ?2 RETURNING id, part),
 d AS (INSERT INTO leat_deliveries (topic_id, group_id, part, id)
  SELECT ?1, g.id, m.part, m.id FROM m CROSS JOIN leat_groups g WHERE g.topic_id = ?1)
 SELECT count(*) FROM m`

// columnsPostgres are messages, a column each.
type columnsPostgres struct {
	topic                       audience
	pubs                        []*publication
	parts                       []int32
	ids, keys, headers, payload [][]byte
}

// insert is one round trip. Topics that have another generation by now are
// looked up again, and what is for them is published in another transaction.
func (d postgres) insert(ctx context.Context, p *producer, next func() []*publication) (map[string]error, error) {
	missing := map[string]error{}
	for left, tries := next(), 0; len(left) > 0; tries++ {
		if tries == staleTries {
			return missing, errStale
		}
		columns, err := d.columns(ctx, p, left, missing)
		if err != nil {
			return nil, err
		}
		var stale []*publication
		err = p.db.Retry(ctx, func() error {
			stale = nil
			b := &pgx.Batch{}
			for _, c := range columns {
				b.Queue(p.db.SQL(gateSharedPostgres), gateKey(c.topic.topic, c.topic.gen))
				b.Queue(p.db.SQL(insertPostgres), c.topic.id, c.topic.gen, c.parts, c.ids, c.keys, c.headers, c.payload).
					QueryRow(func(r pgx.Row) error {
						var n int
						err := r.Scan(&n)
						if n == 0 {
							stale = append(stale, c.pubs...)
						}
						return err
					})
			}
			return p.db.Pool.SendBatch(ctx, b).Close()
		})
		if err != nil {
			return nil, err
		}
		for _, pub := range stale {
			delete(p.topics, pub.topic)
		}
		left = stale
	}
	return missing, nil
}

func (d postgres) columns(ctx context.Context, p *producer, batch []*publication, missing map[string]error) ([]*columnsPostgres, error) {
	byTopic := map[string]*columnsPostgres{}
	var all []*columnsPostgres
	for _, pub := range batch {
		c := byTopic[pub.topic]
		if c == nil && missing[pub.topic] == nil {
			tp, err := p.audience(ctx, pub.topic)
			if errors.Is(err, errMissing) {
				missing[pub.topic] = transport.Refuse(err)
			} else if err != nil {
				return nil, err
			}
			c = &columnsPostgres{topic: tp}
			byTopic[pub.topic] = c
			if missing[pub.topic] == nil {
				all = append(all, c)
			}
		}
		if missing[pub.topic] != nil {
			continue
		}
		c.pubs = append(c.pubs, pub)
		for _, m := range pub.msgs {
			c.parts = append(c.parts, int32(p.partition(m.key, c.topic.partitions))) //nolint:gosec // at most maxPartitions
			c.ids, c.keys = append(c.ids, bytesOf(m.id)), append(c.keys, bytesOf(m.key))
			c.headers, c.payload = append(c.headers, m.headers), append(c.payload, m.payload)
		}
	}
	return all, nil
}

// bytesOf is NULL where there is nothing.
func bytesOf(s string) []byte {
	if s == "" {
		return nil
	}
	return []byte(s)
}
