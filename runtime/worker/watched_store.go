package worker

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/leat-io/leat/middleware"
)

// watchedStore counts the calls of one consumer to its dedup store that fail.
type watchedStore struct {
	middleware.DedupStore

	failures atomic.Int64
	down     atomic.Bool // the last call failed
}

func (s *watchedStore) note(ctx context.Context, err error) error {
	if ctx.Err() == nil { // else the store has no part in it
		s.down.Store(err != nil)
		if err != nil {
			s.failures.Add(1)
		}
	}
	return err
}

func (s *watchedStore) Claim(ctx context.Context, k middleware.DedupKey, lease time.Duration) (middleware.DedupState, error) {
	state, err := s.DedupStore.Claim(ctx, k, lease)
	return state, s.note(ctx, err)
}

func (s *watchedStore) Renew(ctx context.Context, lease time.Duration, claims ...middleware.DedupClaim) error {
	return s.note(ctx, s.DedupStore.Renew(ctx, lease, claims...))
}

func (s *watchedStore) Done(ctx context.Context, c middleware.DedupClaim, window time.Duration) error {
	return s.note(ctx, s.DedupStore.Done(ctx, c, window))
}

func (s *watchedStore) Release(ctx context.Context, c middleware.DedupClaim) error {
	return s.note(ctx, s.DedupStore.Release(ctx, c))
}
