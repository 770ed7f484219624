package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"sync"
)

// signals wakes readers of this process the moment something is written.
type signals struct {
	mu   sync.Mutex
	subs map[string]map[chan struct{}]struct{}
}

func newSignals() *signals {
	return &signals{subs: map[string]map[chan struct{}]struct{}{}}
}

// wake wakes all who subscribed to name, in this process. It does not block.
func (s *signals) wake(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ch := range s.subs[name] {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// wakeAll is for when it is not known what was missed.
func (s *signals) wakeAll() {
	s.mu.Lock()
	names := slices.Collect(maps.Keys(s.subs))
	s.mu.Unlock()
	for _, name := range names {
		s.wake(name)
	}
}

// Subscribe returns a channel that gets a value after a Wake of any of names;
// several Wakes may be one value. cancel ends that.
func (s *signals) Subscribe(names ...string) (ch <-chan struct{}, cancel func()) {
	c := make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range names {
		if s.subs[n] == nil {
			s.subs[n] = map[chan struct{}]struct{}{}
		}
		s.subs[n][c] = struct{}{}
	}
	return c, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, n := range names {
			delete(s.subs[n], c)
			if len(s.subs[n]) == 0 {
				delete(s.subs, n)
			}
		}
	}
}

// changes watches the file for the commits of all processes.
type changes struct {
	mu     sync.Mutex
	reader *sql.DB
	conn   *sql.Conn
}

// Version, of SQLite, is a number that differs from an earlier one if anybody
// committed in between. It costs a few microseconds and no disk access.
func (c *changes) Version(ctx context.Context) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil {
		conn, err := c.reader.Conn(ctx) // the pragma counts per connection
		if err != nil {
			return 0, err
		}
		c.conn = conn
	}
	var v int64
	err := c.conn.QueryRowContext(context.WithoutCancel(ctx), "PRAGMA data_version").Scan(&v)
	if err != nil {
		err = errors.Join(err, c.conn.Close())
		c.conn = nil
	}
	return v, err
}

func (c *changes) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil {
		return nil
	}
	err := c.conn.Close()
	c.conn = nil
	return err
}
