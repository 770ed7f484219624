package dedupsql_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/leat-io/leat/internal/sqldb"
	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/middleware/dedupsql"
	"github.com/leat-io/leat/middleware/internal/deduptest"
	"github.com/leat-io/leat/runtime/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openDB(tb testing.TB, path string) *sqldb.DB {
	tb.Helper()
	db, err := sqldb.Open(context.Background(), sqldb.Options{Path: path})
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, db.Close()) })
	return db
}

func open(tb testing.TB, db *sqldb.DB, instance transport.Instance) *dedupsql.Store {
	tb.Helper()
	s := dedupsql.New(db, instance)
	tb.Cleanup(func() { require.NoError(tb, s.Close()) })
	return s
}

func newDB(tb testing.TB) *sqldb.DB {
	tb.Helper()
	return openDB(tb, filepath.Join(tb.TempDir(), "dedup.db"))
}

// pass lets time go by for all rows: the clock is the database's.
func pass(t *testing.T, db *sqldb.DB, d time.Duration) {
	t.Helper()
	require.NoError(t, db.InTx(t.Context(), func(tx *sql.Tx) error {
		_, err := tx.ExecContext(t.Context(), "UPDATE leat_dedup SET until = until - ?", d.Microseconds())
		return err
	}))
}

func rows(t *testing.T, db *sqldb.DB) (n int) {
	t.Helper()
	require.NoError(t, db.Reader.QueryRowContext(t.Context(), "SELECT count(*) FROM leat_dedup").Scan(&n))
	return n
}

func TestStore(t *testing.T) {
	t.Parallel()
	for _, c := range deduptest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			db := newDB(t)
			s := open(t, db, transport.Instance{})
			c.Run(t, s, func(d time.Duration) { pass(t, db, d) })
		})
	}
}

func claim(t *testing.T, s *dedupsql.Store, key string) middleware.DedupState {
	t.Helper()
	state, err := s.Claim(t.Context(), middleware.DedupKey{Key: key}, time.Hour)
	require.NoError(t, err)
	return state
}

func TestInstanceTakesItsOwnClaimsBack(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	set := func(id string) transport.Instance { return transport.Instance{ID: id, Set: true} }
	before := open(t, db, set("w1"))
	token := claim(t, before, "a").Token
	require.Equal(t, middleware.DedupHeld, claim(t, before, "a").Status, "but not from itself")
	done := claim(t, before, "done")
	require.NoError(t, before.Done(t.Context(), middleware.DedupClaim{DedupKey: middleware.DedupKey{Key: "done"}, Token: done.Token}, time.Hour))

	for _, other := range []transport.Instance{set("w2"), set("1"), set(""), {}, {ID: "w1"}} {
		require.Equal(t, middleware.DedupHeld, claim(t, open(t, db, other), "a").Status, "%v", other)
	}
	after := open(t, db, set("w1"))
	state := claim(t, after, "a")
	require.Equal(t, middleware.DedupFresh, state.Status)
	require.Greater(t, state.Token, token)
	require.Equal(t, middleware.DedupDone, claim(t, after, "done").Status)
	require.ErrorIs(t, before.Done(t.Context(), middleware.DedupClaim{DedupKey: middleware.DedupKey{Key: "a"}, Token: token}, time.Hour), middleware.ErrLost)
}

func TestClaimsOfAnUnnamedInstanceAreNobodysOwn(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	claim(t, open(t, db, transport.Instance{ID: "host-1"}), "a")
	for _, other := range []transport.Instance{{ID: "host-1"}, {ID: "host-1", Set: true}, {}, {Set: true}} {
		require.Equal(t, middleware.DedupHeld, claim(t, open(t, db, other), "a").Status, "%v", other)
	}
}

// expire leaves n rows that are past their time.
func expire(t *testing.T, db *sqldb.DB, n int) {
	t.Helper()
	require.NoError(t, db.InTx(t.Context(), func(tx *sql.Tx) error {
		_, err := tx.ExecContext(t.Context(), `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
			INSERT INTO leat_dedup (scope, key, token, done, until) SELECT 'old', i, 1, 1, i FROM n`, n)
		return err
	}))
}

func TestSweepIsBoundedAndGoesOnWhileThereIsMore(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	expire(t, db, 2500)
	s := open(t, db, transport.Instance{})
	for i, want := range []int{1501, 502, 3, 4} {
		claim(t, s, strconv.Itoa(i))
		require.Equal(t, want, rows(t, db))
	}
}

func TestSweepKeepsUpWithWhatComes(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	s := open(t, db, transport.Instance{})
	c := middleware.DedupClaim{DedupKey: middleware.DedupKey{Key: "a"}, Token: claim(t, s, "a").Token}
	expire(t, db, 100)
	for range 499 {
		require.NoError(t, s.Done(t.Context(), c, time.Hour))
	}
	require.Equal(t, 101, rows(t, db), "not for every commit")
	require.NoError(t, s.Done(t.Context(), c, time.Hour))
	require.Equal(t, 1, rows(t, db))
}

func TestClaimGivenUpIsGivenBack(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	s := open(t, db, transport.Instance{})
	tx, err := db.Writer.BeginTx(t.Context(), nil) // so that the claim has to wait
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	given := make(chan error, 1)
	go func() {
		_, err := s.Claim(ctx, middleware.DedupKey{Key: "a"}, time.Hour)
		given <- err
	}()
	cancel()
	require.ErrorIs(t, <-given, context.Canceled)
	require.NoError(t, tx.Rollback())
	require.Eventually(t, func() bool { return claim(t, s, "a").Status == middleware.DedupFresh }, 10*time.Second, time.Millisecond)
}

func TestClosedStoreRefuses(t *testing.T) {
	t.Parallel()
	s := open(t, newDB(t), transport.Instance{})
	require.NoError(t, s.Close())
	_, err := s.Claim(t.Context(), middleware.DedupKey{Key: "a"}, time.Hour)
	require.ErrorIs(t, err, transport.ErrClosed)
}

func TestBrokenDatabaseFailsTheCall(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	s := open(t, db, transport.Instance{})
	require.NoError(t, db.InTx(t.Context(), func(tx *sql.Tx) error {
		_, err := tx.ExecContext(t.Context(), "DROP TABLE leat_dedup")
		return err
	}))
	_, err := s.Claim(t.Context(), middleware.DedupKey{Key: "a"}, time.Hour)
	require.ErrorContains(t, err, "dedup.db")
}

// F1 at the store.
func TestRaceBetweenTwoStores(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "dedup.db")
	stores := []*dedupsql.Store{open(t, openDB(t, path), transport.Instance{}), open(t, openDB(t, path), transport.Instance{})}
	for i := range 100 {
		k := middleware.DedupKey{Key: strconv.Itoa(i)}
		var wg sync.WaitGroup
		won := make(chan struct{}, len(stores))
		for _, s := range stores {
			wg.Go(func() {
				state, err := s.Claim(t.Context(), k, time.Hour)
				if err != nil {
					t.Error(err)
				}
				if state.Status == middleware.DedupFresh {
					won <- struct{}{}
				}
			})
		}
		wg.Wait()
		require.Len(t, won, 1)
	}
}

func BenchmarkStore(b *testing.B) {
	s := open(b, newDB(b), transport.Instance{})
	b.ReportAllocs()
	b.SetParallelism(64)
	var mu sync.Mutex
	n := 0
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			mu.Lock()
			n++
			k := middleware.DedupKey{Scope: "g", Key: strconv.Itoa(n)}
			mu.Unlock()
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
