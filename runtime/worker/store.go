package worker

import (
	"context"
	"sync"
	"time"

	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/runtime/transport"
)

// store opens a dedup store when keys are first asked for. Until that
// succeeds its methods fail, and dedup has the messages wait.
type store struct {
	open OpenStore

	mu     sync.Mutex
	opened middleware.DedupStore
	close  func() error
	closed bool
}

// get opens the store. The mutex is held meanwhile: all who wait want the same.
func (s *store) get(ctx context.Context) (middleware.DedupStore, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.opened != nil:
		return s.opened, nil
	case s.closed:
		return nil, transport.ErrClosed
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	opened, closing, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	s.opened, s.close = opened, closing
	return opened, nil
}

// openTimeout bounds one try.
const openTimeout = 5 * time.Second

// Close closes what was opened.
func (s *store) Close(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	closing := s.close
	s.closed, s.opened, s.close = true, nil, nil
	if closing == nil {
		return nil
	}
	return closing()
}

func (s *store) Claim(ctx context.Context, k middleware.DedupKey, lease time.Duration) (middleware.DedupState, error) {
	opened, err := s.get(ctx)
	if err != nil {
		return middleware.DedupState{}, err
	}
	return opened.Claim(ctx, k, lease)
}

func (s *store) Renew(ctx context.Context, lease time.Duration, claims ...middleware.DedupClaim) error {
	opened, err := s.get(ctx)
	if err != nil {
		return err
	}
	return opened.Renew(ctx, lease, claims...)
}

func (s *store) Done(ctx context.Context, c middleware.DedupClaim, window time.Duration) error {
	opened, err := s.get(ctx)
	if err != nil {
		return err
	}
	return opened.Done(ctx, c, window)
}

func (s *store) Release(ctx context.Context, c middleware.DedupClaim) error {
	opened, err := s.get(ctx)
	if err != nil {
		return err
	}
	return opened.Release(ctx, c)
}
