package dedupsql_test

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/leat-io/leat/internal/sqldb"
	"github.com/leat-io/leat/internal/sqldb/sqldbtest"
	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/middleware/dedupsql"
	"github.com/leat-io/leat/middleware/internal/deduptest"
	"github.com/leat-io/leat/runtime/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(tb testing.TB, db *sqldb.DB, instance transport.Instance) *dedupsql.Store {
	tb.Helper()
	s := dedupsql.New(db, instance)
	tb.Cleanup(func() { require.NoError(tb, s.Close()) })
	return s
}

// onEach runs a test on each kind of database.
func onEach(t *testing.T, test func(t *testing.T, db *sqldb.DB)) {
	t.Helper()
	sqldbtest.Each(t, func(t *testing.T, o sqldb.Options) {
		t.Helper()
		test(t, sqldbtest.Open(t, o))
	})
}

// exec runs a statement that everybody sees at once.
func exec(t *testing.T, db *sqldb.DB, query string, args ...any) {
	t.Helper()
	require.NoError(t, db.InTx(t.Context(), func(tx *sql.Tx) error {
		_, err := tx.ExecContext(t.Context(), db.SQL(query), args...)
		return err
	}))
}

// pass lets time go by for all rows: the clock is the database's.
func pass(t *testing.T, db *sqldb.DB, d time.Duration) {
	t.Helper()
	exec(t, db, "UPDATE leat_dedup SET until = until - ?", d.Microseconds())
}

func rows(t *testing.T, db *sqldb.DB) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRow(t.Context(), nil, "SELECT count(*) FROM leat_dedup", nil, &n))
	return n
}

func TestStore(t *testing.T) {
	t.Parallel()
	for _, c := range deduptest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, db *sqldb.DB) {
				t.Helper()
				c.Run(t, open(t, db, transport.Instance{}), func(d time.Duration) { pass(t, db, d) })
			})
		})
	}
}

func claim(t *testing.T, s *dedupsql.Store, key string) middleware.DedupState {
	t.Helper()
	state, err := s.Claim(t.Context(), middleware.DedupKey{Key: key}, time.Hour)
	require.NoError(t, err)
	return state
}

// held is what was claimed of a key.
func held(key string, token int64) middleware.DedupClaim {
	return middleware.DedupClaim{DedupKey: middleware.DedupKey{Key: key}, Token: token}
}

func TestInstanceTakesItsOwnClaimsBack(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, db *sqldb.DB) {
		t.Helper()
		set := func(id string) transport.Instance { return transport.Instance{ID: id, Set: true} }
		before := open(t, db, set("w1"))
		token := claim(t, before, "a").Token
		require.Equal(t, middleware.DedupHeld, claim(t, before, "a").Status, "but not from itself")
		done := claim(t, before, "done")
		require.NoError(t, before.Done(t.Context(), held("done", done.Token), time.Hour))

		for _, other := range []transport.Instance{set("w2"), set("1"), set(""), {}, {ID: "w1"}} {
			require.Equal(t, middleware.DedupHeld, claim(t, open(t, db, other), "a").Status, "%v", other)
		}
		after := open(t, db, set("w1"))
		state := claim(t, after, "a")
		require.Equal(t, middleware.DedupFresh, state.Status)
		require.Greater(t, state.Token, token)
		require.Equal(t, middleware.DedupDone, claim(t, after, "done").Status)
		require.ErrorIs(t, before.Done(t.Context(), held("a", token), time.Hour), middleware.ErrLost)
	})
}

func TestClaimsOfAnUnnamedInstanceAreNobodysOwn(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, db *sqldb.DB) {
		t.Helper()
		claim(t, open(t, db, transport.Instance{ID: "host-1"}), "a")
		for _, other := range []transport.Instance{{ID: "host-1"}, {ID: "host-1", Set: true}, {}, {Set: true}} {
			require.Equal(t, middleware.DedupHeld, claim(t, open(t, db, other), "a").Status, "%v", other)
		}
	})
}

// expire leaves n rows that are past their time.
func expire(t *testing.T, db *sqldb.DB, n int) {
	t.Helper()
	for from := 1; from <= n; from += 500 {
		var values []string
		for i := from; i < from+500 && i <= n; i++ {
			values = append(values, fmt.Sprintf("('old', '%d', 1, 1, %d)", i, i))
		}
		exec(t, db, `INSERT INTO leat_dedup (scope, "key", token, done, until) VALUES `+strings.Join(values, ", "))
	}
}

func TestSweepIsBoundedAndGoesOnWhileThereIsMore(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, db *sqldb.DB) {
		t.Helper()
		expire(t, db, 2500)
		s := open(t, db, transport.Instance{})
		for i, want := range []int{1501, 502, 3, 4} {
			claim(t, s, strconv.Itoa(i))
			require.Equal(t, want, rows(t, db))
		}
	})
}

func TestSweepKeepsUpWithWhatComes(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, db *sqldb.DB) {
		t.Helper()
		s := open(t, db, transport.Instance{})
		c := held("a", claim(t, s, "a").Token)
		expire(t, db, 100)
		for range 499 {
			require.NoError(t, s.Done(t.Context(), c, time.Hour))
		}
		require.Equal(t, 101, rows(t, db), "not for every commit")
		require.NoError(t, s.Done(t.Context(), c, time.Hour))
		require.Equal(t, 1, rows(t, db))
	})
}

func TestClosedStoreRefuses(t *testing.T) {
	t.Parallel()
	s := open(t, sqldbtest.Open(t, sqldbtest.File(t)), transport.Instance{})
	require.NoError(t, s.Close())
	_, err := s.Claim(t.Context(), middleware.DedupKey{Key: "a"}, time.Hour)
	require.ErrorIs(t, err, transport.ErrClosed)
}

func TestBrokenDatabaseFailsTheCall(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, db *sqldb.DB) {
		t.Helper()
		s := open(t, db, transport.Instance{})
		token := claim(t, s, "a").Token
		exec(t, db, "DROP TABLE leat_dedup")
		_, err := s.Claim(t.Context(), middleware.DedupKey{Key: "b"}, time.Hour)
		require.ErrorContains(t, err, db.Name)
		require.ErrorContains(t, s.Done(t.Context(), held("a", token), time.Hour), db.Name)
		require.ErrorContains(t, s.Renew(t.Context(), time.Hour, held("a", token)), db.Name)
		require.ErrorContains(t, s.Release(t.Context(), held("a", token)), db.Name)
	})
}

// BenchmarkStore claims and marks from 128 goroutines.
func BenchmarkStore(b *testing.B) {
	b.Run("sqlite", func(b *testing.B) { benchmarkStore(b, sqldbtest.File(b)) })
	for dialect, name := range sqldbtest.Brokers {
		b.Run(name, func(b *testing.B) { benchmarkStore(b, sqldbtest.New(b, dialect)) })
	}
}

func benchmarkStore(b *testing.B, o sqldb.Options) {
	b.Helper()
	s := open(b, sqldbtest.Open(b, o), transport.Instance{})
	b.ReportAllocs()
	b.SetParallelism(64)
	var n atomic.Int64
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			k := middleware.DedupKey{Scope: "g", Key: strconv.FormatInt(n.Add(1), 10)}
			state, err := s.Claim(context.Background(), k, time.Minute)
			if err == nil {
				err = s.Done(context.Background(), middleware.DedupClaim{DedupKey: k, Token: state.Token}, time.Hour)
			}
			if err != nil {
				b.Error(err)
			}
		}
	})
}
