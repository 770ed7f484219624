package middleware

import (
	"context"
	"hash/maphash"
	"math/bits"
	"sync"
	"time"
)

// DefaultDedupKeys is how many done keys a [MemoryDedup] remembers.
const DefaultDedupKeys = 100_000

// MemoryDedup is a [DedupStore] within one process: it forgets everything when
// the process ends, and knows nothing of other workers.
//
// Done keys are bounded in number, and the oldest are forgotten first. (A
// general cache evicts by how often an entry is used. Here nothing is used
// twice until a duplicate comes, and the newest keys are those whose
// redelivery is to be expected.) Claims are bounded by what their owners hold.
type MemoryDedup struct {
	max int

	seed   maphash.Seed
	mu     sync.Mutex
	keys   map[uint64]*memoryRecord // by hash: a shared one delays or forgets, but never takes one key for another
	token  int64
	oldest *memoryRecord // done records, in the order they were done
	newest *memoryRecord
	done   int
}

type memoryRecord struct {
	scope string
	key   string
	hash  uint64
	token int64
	done  bool
	body  DedupBody
	until time.Time
	next  *memoryRecord
	gone  bool // another record has its key
}

// NewMemoryDedup makes a store for up to maxKeys done keys; 0 means
// [DefaultDedupKeys].
func NewMemoryDedup(maxKeys int) *MemoryDedup {
	if maxKeys <= 0 {
		maxKeys = DefaultDedupKeys
	}
	return &MemoryDedup{max: maxKeys, seed: maphash.MakeSeed(), keys: make(map[uint64]*memoryRecord)}
}

// Claim never fails.
func (s *MemoryDedup) Claim(_ context.Context, k DedupKey, lease time.Duration) (DedupState, error) {
	now := time.Now()
	hash := s.hash(&k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.keys[hash]; r != nil {
		switch {
		case !now.Before(r.until), r.done && !r.is(&k):
			r.gone = true
		case r.done:
			return DedupState{Status: DedupDone, Body: r.body}, nil
		default:
			return DedupState{Status: DedupHeld, Left: r.until.Sub(now)}, nil
		}
	}
	s.token++
	s.keys[hash] = &memoryRecord{scope: k.Scope, key: k.Key, hash: hash, token: s.token, body: k.Body, until: now.Add(lease)}
	return DedupState{Status: DedupFresh, Token: s.token}, nil
}

// Renew never fails.
func (s *MemoryDedup) Renew(_ context.Context, lease time.Duration, claims ...DedupClaim) error {
	until := time.Now().Add(lease)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range claims {
		if r := s.claimed(&claims[i]); r != nil && !r.done {
			r.until = until
		}
	}
	return nil
}

// Done fails only with [ErrLost].
func (s *MemoryDedup) Done(_ context.Context, c DedupClaim, window time.Duration) error {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.claimed(&c)
	if r == nil {
		return ErrLost
	}
	r.until = now.Add(window)
	if r.done {
		return nil
	}
	r.done = true
	if s.newest == nil {
		s.oldest = r
	} else {
		s.newest.next = r
	}
	s.newest = r
	s.done++
	s.forget(now)
	return nil
}

// Release never fails.
func (s *MemoryDedup) Release(_ context.Context, c DedupClaim) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.claimed(&c); r != nil && !r.done {
		delete(s.keys, r.hash)
	}
	return nil
}

// claimed is the record of a claim that was not taken over.
func (s *MemoryDedup) claimed(c *DedupClaim) *memoryRecord {
	if r := s.keys[s.hash(&c.DedupKey)]; r != nil && r.token == c.Token {
		return r
	}
	return nil
}

func (s *MemoryDedup) hash(k *DedupKey) uint64 {
	return maphash.String(s.seed, k.Scope) ^ bits.RotateLeft64(maphash.String(s.seed, k.Key), 1)
}

func (r *memoryRecord) is(k *DedupKey) bool { return r.key == k.Key && r.scope == k.Scope }

// forget drops the oldest done keys that are over the bound or past their
// window.
func (s *MemoryDedup) forget(now time.Time) {
	for r := s.oldest; r != nil && (s.done > s.max || !now.Before(r.until)); r = s.oldest {
		if !r.gone {
			delete(s.keys, r.hash)
		}
		if s.oldest = r.next; s.oldest == nil {
			s.newest = nil
		}
		s.done--
	}
}
