package sqldb

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// remote carries signals between processes by LISTEN and NOTIFY.
type remote struct {
	s       *shared
	channel string
	id      string // of this process, so that it need not hear itself

	listening atomic.Bool
	stop      context.CancelFunc
	running   sync.WaitGroup

	mu      sync.Mutex
	pending map[string]struct{}
	sending bool
}

const (
	// pace bounds how often a process notifies others: each time the server
	// takes a lock that all who notify in its database wait for.
	pace = 5 * time.Millisecond
	// heartbeat is how often a link that is silent is tried.
	heartbeat = 20 * time.Second
	relisten  = 100 * time.Millisecond
	// relistenMax bounds the growing pauses between two tries to connect.
	relistenMax = 5 * time.Second
)

// Wake tells all who subscribed to name, in this process and, on PostgreSQL, in
// others. It is for after the commit, does not block, and may be lost.
func (d *DB) Wake(name string) {
	d.wake(name)
	if d.remote != nil {
		d.remote.send(name)
	}
}

// Listening tells whether the commits of other processes wake subscribers too.
// Where it is false, they have to look every now and then.
func (d *DB) Listening() bool { return d.remote != nil && d.remote.listening.Load() }

// NotifySQL is a statement and its arguments by which a transaction of whoever
// has one tells all who subscribed to name, this process included, the moment it
// commits. The empty text where a database has no such thing.
func (d *DB) NotifySQL(name string) (query string, args []any) {
	if d.remote == nil {
		return "", nil
	}
	return notifySQL, []any{d.remote.channel, " " + name}
}

// listen begins to. Until it has succeeded, and after a link broke, nothing is
// heard; all subscribers are woken when it has.
func (s *shared) listen(ctx context.Context) *remote {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	r := &remote{s: s, channel: channel(s.tables), id: rand.Text(), stop: stop, pending: map[string]struct{}{}}
	r.running.Go(func() { r.run(ctx) })
	return r
}

func (r *remote) close() {
	if r == nil {
		return
	}
	r.stop()
	r.running.Wait()
}

func (r *remote) run(ctx context.Context) {
	wait := relisten
	for ctx.Err() == nil {
		began := time.Now()
		r.hear(ctx)
		r.listening.Store(false)
		if time.Since(began) > relistenMax {
			wait = relisten
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
		wait = min(2*wait, relistenMax)
	}
}

// hear listens until the link breaks. Why it did is nothing to tell: readers
// look for themselves meanwhile, and what is wrong with the database they say.
func (r *remote) hear(ctx context.Context) {
	connecting, cancel := context.WithTimeout(ctx, 2*r.s.target.server.ConnectTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(connecting, session(r.s.pool.Config()))
	if err != nil {
		return
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing) // it is of no more use either way
	}()
	if _, err := conn.Exec(connecting, "LISTEN "+r.channel); err != nil {
		return
	}
	r.listening.Store(true)
	r.s.wakeAll()
	for {
		waiting, cancel := context.WithTimeout(ctx, heartbeat)
		n, err := conn.WaitForNotification(waiting)
		cancel()
		switch {
		case err == nil:
			if id, name, _ := strings.Cut(n.Payload, " "); id != r.id {
				r.s.wake(name)
			}
		case ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) || !alive(ctx, conn):
			return
		}
	}
}

func alive(ctx context.Context, conn *pgx.Conn) bool {
	ctx, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	return conn.Ping(ctx) == nil
}

// send has a name told with the next notification.
func (r *remote) send(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending[name] = struct{}{}
	if !r.sending {
		r.sending = true
		r.running.Go(r.flush)
	}
}

// flush sends until there is nothing left to.
func (r *remote) flush() {
	for {
		r.mu.Lock()
		if len(r.pending) == 0 {
			r.sending = false
			r.mu.Unlock()
			return
		}
		payloads := make([]string, 0, len(r.pending))
		for name := range r.pending {
			payloads = append(payloads, r.id+" "+name)
		}
		clear(r.pending)
		r.mu.Unlock()
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), silence)
		_, _ = r.s.pool.Exec(ctx, "SELECT pg_notify($1, n) FROM unnest($2::text[]) n", r.channel, payloads) // readers of other processes look for themselves
		cancel()
		<-time.After(pace - time.Since(began))
	}
}
