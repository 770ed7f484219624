package sqldb

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

// idleInTransaction is how long the server lets a transaction stand that its
// process does not go on with: a process that was stopped in one would
// otherwise keep its locks.
const idleInTransaction = 10 * time.Second

// silence is how much longer than a statement may take a connection may give
// no sign of life.
const silence = 5 * time.Second

// postgresConfig is that of the pool.
func (s *Server) postgresConfig(u *url.URL) (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(u.String())
	if err != nil {
		return nil, fmt.Errorf("the URL cannot be used: %w", err) // pgx takes the password out
	}
	cc := cfg.ConnConfig
	if s.Username != "" {
		cc.User = s.Username
	}
	if s.Password != "" {
		cc.Password = s.Password
	}
	cc.Database = s.Database
	if s.TLS != nil {
		if err := s.postgresTLS(cc); err != nil {
			return nil, err
		}
	}
	cc.ConnectTimeout = s.ConnectTimeout
	dialer := &net.Dialer{Timeout: s.ConnectTimeout, KeepAlive: 15 * time.Second}
	cc.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &timedConn{Conn: conn, silence: s.StatementTimeout + silence}, nil
	}
	cc.RuntimeParams["application_name"] = s.ApplicationName
	if s.Pooler == "" {
		cc.RuntimeParams["statement_timeout"] = milliseconds(s.StatementTimeout)
		cc.RuntimeParams["idle_in_transaction_session_timeout"] = milliseconds(idleInTransaction)
		cc.RuntimeParams["default_transaction_isolation"] = "read committed" // batches begin no transaction by name
		cc.RuntimeParams["jit"] = "off"                                      // it takes longer than any of our statements
	} else {
		cc.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		cc.StatementCacheCapacity = 0
	}
	cfg.MaxConns = int32(s.PoolSize) //nolint:gosec // bounded by check
	cfg.MaxConnLifetimeJitter = cfg.MaxConnLifetime / 10
	return cfg, nil
}

// postgresTLS has every host of the URL reached by TLS only.
func (s *Server) postgresTLS(cc *pgx.ConnConfig) error {
	var err error
	if cc.TLSConfig, err = s.TLS.config(cc.Host); err != nil {
		return err
	}
	kept := cc.Fallbacks[:0]
	seen := map[string]bool{withPort(cc.Host, strconv.Itoa(int(cc.Port))): true}
	for _, f := range cc.Fallbacks {
		host := withPort(f.Host, strconv.Itoa(int(f.Port)))
		if seen[host] {
			continue // the same one without TLS
		}
		seen[host] = true
		if f.TLSConfig, err = s.TLS.config(f.Host); err != nil {
			return err
		}
		kept = append(kept, f)
	}
	cc.Fallbacks = kept
	return nil
}

func milliseconds(d time.Duration) string {
	return strconv.FormatInt(max(1, d.Milliseconds()), 10)
}

// session is a database whose connections have no limits of time, for what
// may take long: migrations, and listening.
func session(cfg *pgxpool.Config) *pgx.ConnConfig {
	cc := cfg.ConnConfig.Copy()
	dialer := &net.Dialer{Timeout: cc.ConnectTimeout, KeepAlive: 15 * time.Second}
	cc.DialFunc = dialer.DialContext
	delete(cc.RuntimeParams, "statement_timeout")
	delete(cc.RuntimeParams, "idle_in_transaction_session_timeout")
	return cc
}

func (s *shared) connectPostgres(ctx context.Context, cfg *pgxpool.Config) error {
	pool, err := pgxpool.NewWithConfig(ctx, cfg) // it connects when it is used
	if err != nil {
		return err
	}
	s.pool = pool
	s.writer = stdlib.OpenDBFromPool(pool)
	s.reader = s.writer
	s.migrator = func() *sql.DB {
		db := stdlib.OpenDB(*session(cfg))
		db.SetMaxOpenConns(2) // one has the lock
		return db
	}
	return nil
}

// timedConn gives up on a server that says nothing for too long in the midst
// of an answer: a link that loses everything looks like a slow one.
type timedConn struct {
	net.Conn

	silence time.Duration

	mu  sync.Mutex
	set time.Time // what the driver asked for
}

func (c *timedConn) Read(b []byte) (int, error) {
	c.mu.Lock()
	until := c.set
	if until.IsZero() {
		until = time.Now().Add(c.silence)
	}
	err := c.SetReadDeadline(until)
	c.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return c.Conn.Read(b)
}

func (c *timedConn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set = t
	return c.Conn.SetDeadline(t)
}
