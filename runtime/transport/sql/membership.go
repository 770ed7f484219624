package sql

import (
	"context"
	"strings"
	"sync"

	"github.com/leat-io/leat/runtime/transport"
)

// memberships are those of consumers that have lost the database. Whoever opens
// the same consumer again goes on with one, and with its leases: handlers that
// outlive the connection still run what is held under them, and another
// instance would run it beside them. Nobody renews them meanwhile.
type memberships struct {
	mu   sync.Mutex
	left map[string]*consumer
}

func membershipOf(cfg transport.ConsumerConfig) string {
	return strings.Join(append([]string{cfg.Name, cfg.Group}, cfg.Topics...), "\x00")
}

// leave keeps the membership of a consumer that is closed.
func (m *memberships) leave(c *consumer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left == nil {
		m.left = map[string]*consumer{}
	}
	m.left[membershipOf(c.cfg)] = c
}

// take gives the consumer that has left such a membership, once; nil if there
// is none.
func (m *memberships) take(cfg transport.ConsumerConfig) *consumer {
	m.mu.Lock()
	defer m.mu.Unlock()
	name := membershipOf(cfg)
	c := m.left[name]
	delete(m.left, name)
	return c
}

// resign gives up what nobody has come back for. Where the database is still
// away, the leases run out.
func (m *memberships) resign(ctx context.Context) {
	m.mu.Lock()
	left := m.left
	m.left = nil
	m.mu.Unlock()
	for _, c := range left {
		ctx, cancel := context.WithTimeout(ctx, c.t.o.lease/renewals)
		_ = c.resign(ctx)
		cancel()
	}
}
