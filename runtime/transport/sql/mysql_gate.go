package sql

import (
	"context"
	stdsql "database/sql"
	"strings"

	"github.com/leat-io/leat/internal/sqldb"
)

// sharedFreeMySQL ends a SELECT that shares rows and leaves out those that
// others have locked. MariaDB reads the first comment, MySQL 8 the second.
const sharedFreeMySQL = " /*M! LOCK IN SHARE MODE SKIP LOCKED */ /*!80001 FOR SHARE SKIP LOCKED */"

// gateMySQL takes a share of a gate, and then looks at the topic's generation:
// a group that has raised it before is seen, one that does so later waits.
var gateMySQL = "SELECT gen, @@auto_increment_increment, @@max_allowed_packet, " + sqldb.MySQL.Now() + " FROM leat_gates WHERE topic_id = ? AND gen = ?" + sharedFreeMySQL +
	"; SELECT gen FROM leat_topics WHERE id = ?"

// here is what a transaction finds on its connection.
type here struct {
	step   int64 // by which the ids of one INSERT differ: each connection has a setting of its own
	packet int   // bytes of a query at most, likewise
	now    int64 // the database's time in microseconds
}

// atGate takes a share of the gate of a generation, and tells whether that is
// the topic's still.
func atGate(ctx context.Context, db *database, tx *stdsql.Tx, tp topic, gen int64) (current bool, err error) {
	_, stale, err := atGates(ctx, db, tx, "", []audience{{topic: tp, gen: gen}})
	return err == nil && len(stale) == 0, err
}

// atGates does so for several topics, in one round trip with what comes before,
// and names those that have another generation.
func atGates(ctx context.Context, db *database, at queryer, before string, topics []audience) (all []here, stale []string, err error) {
	texts := make([]string, 0, 1+len(topics))
	if before != "" {
		texts = append(texts, before)
	}
	var args []any
	for _, tp := range topics {
		texts, args = append(texts, db.SQL(gateMySQL)), append(args, tp.id, tp.gen, tp.id)
	}
	rows, err := at.QueryContext(ctx, strings.Join(texts, "; "), args...)
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	for _, tp := range topics {
		var h here
		gate, gen := int64(-1), int64(-1)
		if err = nextRow(rows, &gate, &h.step, &h.packet, &h.now); err == nil {
			err = nextRow(rows, &gen)
		}
		if err != nil {
			return nil, nil, err
		}
		if gate != tp.gen || gen != tp.gen {
			stale = append(stale, tp.name)
		}
		all = append(all, h)
	}
	return all, stale, nil
}

// nextRow scans the one row of a result, or none, and goes on to the next result.
func nextRow(rows *stdsql.Rows, dest ...any) error {
	if rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return err
		}
	}
	rows.NextResultSet()
	return rows.Err()
}
