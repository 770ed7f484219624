package sql

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

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

// complete fills in defaults, and refuses what makes no sense.
func (o *Options) complete() error {
	var errs []error
	if o.Partitions < 0 || o.Partitions > maxPartitions {
		errs = append(errs, fmt.Errorf("sqlite broker: partitions is %d: say 1 to %d", o.Partitions, maxPartitions))
	}
	if o.Retention < 0 || o.Poll < 0 {
		errs = append(errs, errors.New("sqlite broker: retention and poll cannot be negative"))
	}
	if o.Lease != 0 && o.Lease < minLease {
		errs = append(errs, fmt.Errorf("sqlite broker: lease is %s: say at least %s", o.Lease, minLease))
	}
	if o.Poll == 0 {
		o.Poll = defaultPoll
	}
	if o.Lease == 0 {
		o.Lease = defaultLease
	}
	if err := errors.Join(errs...); err != nil {
		return transport.Refuse(err)
	}
	return nil
}
