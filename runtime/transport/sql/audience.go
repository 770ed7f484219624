package sql

import (
	"context"
	stdsql "database/sql"
	"errors"

	"github.com/leat-io/leat/runtime/transport"
)

// audience is a topic as a publisher knows it, of one generation.
type audience struct {
	topic

	gen    int64
	groups []int64
}

// staleTries bounds how often a publisher learns of another generation in one
// publish: each time a group came, or went.
const staleTries = 100

var errStale = errors.New("groups of the topic come and go all the time")

// audience gives a topic, which is looked up once for each of its generations,
// and made where that is allowed.
func (p *producer) audience(ctx context.Context, name string) (audience, error) {
	if a, ok := p.topics[name]; ok {
		return a, nil
	}
	a, err := findAudience(ctx, p.db, nil, name)
	if errors.Is(err, errMissing) && p.t.creates() {
		err = p.db.InTx(ctx, func(tx *stdsql.Tx) error {
			_, err := p.t.declareTopic(ctx, p.db, tx, transport.Declaration{Topic: name})
			return err
		})
		if err == nil {
			a, err = findAudience(ctx, p.db, nil, name)
		}
	}
	if err != nil {
		return a, err
	}
	p.topics[name] = a
	return a, nil
}

// findAudience reads the generation first: groups that come after are of a
// later one, and left out.
func findAudience(ctx context.Context, db *database, tx *stdsql.Tx, name string) (audience, error) {
	tp, err := findTopic(ctx, db, tx, name)
	a := audience{topic: tp}
	if err != nil {
		return a, err
	}
	if err := db.first(ctx, tx, "SELECT gen FROM leat_topics WHERE id = ?", []any{tp.id}, &a.gen); err != nil {
		return a, err
	}
	err = db.each(ctx, tx, "SELECT id FROM leat_groups WHERE topic_id = ? AND gen <= ?", []any{tp.id, a.gen}, func(r *stdsql.Rows) error {
		var id int64
		err := r.Scan(&id)
		a.groups = append(a.groups, id)
		return err
	})
	return a, err
}
