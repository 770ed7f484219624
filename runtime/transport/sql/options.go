package sql

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/leat-io/leat/internal/sqldb"
	"github.com/leat-io/leat/runtime/transport"
)

// Options configures a database as a broker. The zero value of a field means
// its default.
type Options struct {
	// Path of the SQLite file; a relative one starts from the folder of the
	// YAML file, and in code from the working directory.
	Path string `yaml:"path"`
	// Synchronous is "full", or "normal", where a power cut may undo the last
	// commits: what was confirmed to a publisher is then lost. Default: full.
	Synchronous string `yaml:"synchronous" enum:"normal,full"`
	// Partitions of a topic that is made. It bounds how many instances share
	// a group, and is fixed from then on. Default: 8.
	Partitions int `yaml:"partitions" min:"0" max:"256"`
	// Retention is how long a message is kept that no group reads. Default: 168h.
	Retention time.Duration `yaml:"retention"`
	// Poll is the longest pause between two looks for what other processes
	// have published. Default: 250ms.
	Poll time.Duration `yaml:"poll"`
	// Lease is how long a partition stays with an instance that is not heard
	// of any more. It is renewed five times as often. Default: 5s.
	Lease time.Duration `yaml:"lease"`
}

const (
	defaultPartitions = 8
	maxPartitions     = 256
	defaultRetention  = 168 * time.Hour
	defaultPoll       = 250 * time.Millisecond
	defaultLease      = 5 * time.Second
	minLease          = 50 * time.Millisecond
)

// ParseSQLite reads sqlite://PATH, with synchronous=… as a query. PATH is
// relative unless it begins with a slash: sqlite:///var/lib/worker.db.
func ParseSQLite(rawURL string) (Options, error) {
	rest, ok := strings.CutPrefix(rawURL, "sqlite://")
	if !ok {
		return Options{}, errors.New("sqlite broker: the URL does not begin with sqlite://")
	}
	path, query, _ := strings.Cut(rest, "?")
	path, err := url.PathUnescape(path)
	if err != nil {
		return Options{}, fmt.Errorf("sqlite broker: path: %w", err)
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return Options{}, fmt.Errorf("sqlite broker: query: %w", err)
	}
	o := Options{Path: path}
	for k := range values {
		if k != "synchronous" {
			return Options{}, fmt.Errorf("sqlite broker: the URL takes no %q: only synchronous, the rest goes into broker: {sqlite: {…}}", k)
		}
		o.Synchronous = values.Get(k)
	}
	return o, nil
}

// ServerOptions configures a PostgreSQL, MariaDB or MySQL database as a
// broker. The zero value of a field means its default.
type ServerOptions struct {
	Server `yaml:",inline"`

	// Partitions of a topic that is made. It bounds how many instances share
	// a group, and is fixed from then on. Default: 8.
	Partitions int `yaml:"partitions" min:"0" max:"256"`
	// Retention is how long a message is kept that no group reads. Default: 168h.
	Retention time.Duration `yaml:"retention"`
	// Poll is the longest pause between two looks for what other processes
	// have published; on PostgreSQL notifications mostly come before. Default: 250ms.
	Poll time.Duration `yaml:"poll"`
	// Lease is how long a partition stays with an instance that is not heard
	// of any more. It is renewed five times as often. Default: 5s.
	Lease time.Duration `yaml:"lease"`
}

// Server says which server and database, and how to reach it.
type Server = sqldb.Server

// TLS says how a server's certificate is checked.
type TLS = sqldb.TLS

// settings are those that all databases have.
type settings struct {
	partitions             int
	retention, poll, lease time.Duration
}

// complete fills in defaults, and refuses what makes no sense.
func (o *settings) complete(kind string) error {
	var errs []error
	if o.partitions < 0 || o.partitions > maxPartitions {
		errs = append(errs, fmt.Errorf("%s broker: partitions is %d: say 1 to %d", kind, o.partitions, maxPartitions))
	}
	if o.retention < 0 || o.poll < 0 {
		errs = append(errs, fmt.Errorf("%s broker: retention and poll cannot be negative", kind))
	}
	if o.lease != 0 && o.lease < minLease {
		errs = append(errs, fmt.Errorf("%s broker: lease is %s: say at least %s", kind, o.lease, minLease))
	}
	if o.poll == 0 {
		o.poll = defaultPoll
	}
	if o.lease == 0 {
		o.lease = defaultLease
	}
	if err := errors.Join(errs...); err != nil {
		return transport.Refuse(err)
	}
	return nil
}
