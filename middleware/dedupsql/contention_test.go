package dedupsql_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/internal/sqldb"
	"github.com/leat-io/leat/internal/sqldb/sqldbtest"
	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/middleware/dedupsql"
	"github.com/leat-io/leat/runtime/transport"
)

func TestClaimGivenUpIsGivenBack(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, db *sqldb.DB) {
		t.Helper()
		s := open(t, db, transport.Instance{})
		c := held("a", claim(t, s, "a").Token)
		require.NoError(t, s.Release(t.Context(), c))
		tx, err := db.Writer.BeginTx(t.Context(), nil) // so that the claim has to wait
		require.NoError(t, err)
		_, err = tx.ExecContext(t.Context(), db.SQL("UPDATE leat_dedup SET done = 0"))
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
	})
}

// F1 at the store: of two processes that claim a key at the same time, one has it.
func TestRaceBetweenTwoStores(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, db *sqldb.DB) {
		t.Helper()
		stores := []*dedupsql.Store{open(t, db, transport.Instance{}), open(t, db, transport.Instance{})}
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
	})
}

// Sixteen processes with everything at once on the same few keys: nobody ever
// shares a key, no call fails, and no two wait for each other.
func TestSixteenClaimers(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, db *sqldb.DB) {
		t.Helper()
		const claimers, calls, rounds, keys = 16, 8, 12, 20
		var mu sync.Mutex
		holder := map[string]string{}
		fresh := 0
		work := func(s *dedupsql.Store, me string, seed uint64) error {
			r := rand.New(rand.NewPCG(seed, 1))
			for range rounds {
				k := middleware.DedupKey{Scope: "s", Key: strconv.Itoa(r.IntN(keys))}
				state, err := s.Claim(t.Context(), k, time.Hour)
				if err != nil || state.Status != middleware.DedupFresh {
					if err != nil {
						return err
					}
					continue
				}
				mu.Lock()
				other := holder[k.Key]
				holder[k.Key] = me
				fresh++
				mu.Unlock()
				if other != "" {
					return fmt.Errorf("key %s: claimed by %s while %s has it", k.Key, me, other)
				}
				c := middleware.DedupClaim{DedupKey: k, Token: state.Token}
				if err := s.Renew(t.Context(), time.Hour, c); err != nil {
					return err
				}
				mu.Lock()
				delete(holder, k.Key)
				mu.Unlock()
				if r.IntN(2) == 0 {
					err = s.Release(t.Context(), c)
				} else {
					err = s.Done(t.Context(), c, time.Microsecond) // and so soon over
				}
				if err != nil {
					return err
				}
			}
			return nil
		}
		var wg sync.WaitGroup
		for i := range claimers {
			s := open(t, db, transport.Instance{})
			for j := range calls {
				wg.Go(func() {
					if err := work(s, fmt.Sprintf("%d/%d", i, j), uint64(i*calls+j)); err != nil {
						t.Error(err)
					}
				})
			}
		}
		wg.Wait()
		require.Greater(t, fresh, keys)
		t.Logf("%d claims, %d transactions run again", fresh, db.Retries())
		if db.Dialect == sqldb.Postgres {
			require.Zero(t, db.Retries(), "rows are locked in their order")
		}
	})
}

// A row that somebody holds keeps up its own key alone, and for a time that is bounded.
func TestLockedRowHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	sqldbtest.Servers(t, func(t *testing.T, o sqldb.Options) {
		t.Helper()
		db := sqldbtest.Open(t, o)
		s, other := open(t, db, transport.Instance{}), open(t, db, transport.Instance{})
		claim(t, s, "a")
		expire(t, db, 10)
		require.NoError(t, db.InTx(t.Context(), func(tx *sql.Tx) error {
			_, err := tx.ExecContext(t.Context(), db.SQL(`UPDATE leat_dedup SET done = 0 WHERE "key" = 'a'`))
			require.NoError(t, err)
			require.Equal(t, middleware.DedupFresh, claim(t, other, "b").Status)
			return nil
		}))
		require.Equal(t, middleware.DedupHeld, claim(t, other, "a").Status)
	})
}
