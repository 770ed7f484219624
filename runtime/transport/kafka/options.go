package kafka

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/runtime/transport"
)

// Options configures a cluster as a broker. The zero value of a field means
// its default.
type Options struct {
	// Brokers are some of the cluster's, as host:port; the others are found.
	Brokers []string `yaml:"brokers"`
	// ClientID names this program in the broker's logs and quotas. Default: leat.
	ClientID string `yaml:"client_id"`
	// Rack is where the process runs, for brokers that let a near replica be read.
	Rack string `yaml:"rack"`

	// TLS encrypts connections; an empty map is enough where the broker's
	// certificate is signed by a public authority.
	TLS *TLS `yaml:"tls"`
	// SASL says how to log in.
	SASL *SASL `yaml:"sasl"`
	// Username logs in with plain and scram.
	Username string `yaml:"username"`
	// Password logs in with plain and scram.
	Password config.Secret `yaml:"password"`
	// PasswordFile holds the password in place of Password, and is read again
	// for each connection. One trailing newline is not part of it.
	PasswordFile string `yaml:"password_file"`

	// Balancers share out partitions, the first that all members know:
	// cooperative-sticky, sticky, range, roundrobin. Default: cooperative-sticky.
	// Give a second one to move from a group that uses another: Sarama's
	// default is range.
	Balancers []string `yaml:"balancers"`
	// GroupProtocol is "classic", or "consumer", where the broker shares out
	// the partitions (KIP-848, from Kafka 4.0). Default: classic.
	GroupProtocol string `yaml:"group_protocol" enum:"classic,consumer"`
	// SessionTimeout is how long the group waits for a member that is not
	// heard of. With the protocol "consumer" it is the broker's. Default: 45s.
	SessionTimeout time.Duration `yaml:"session_timeout"`
	// RebalanceTimeout is how long the group waits for members that give up
	// partitions. Default: 60s.
	RebalanceTimeout time.Duration `yaml:"rebalance_timeout"`
	// RebalanceDrain is how long running handlers may go on with messages of a
	// partition that leaves; half of RebalanceTimeout where that is less. Default: 5s.
	RebalanceDrain time.Duration `yaml:"rebalance_drain"`
	// CommitInterval is the shortest time between two commits under load. A
	// kill repeats what was handled since the last one. Default: 20ms.
	CommitInterval time.Duration `yaml:"commit_interval"`
	// CommitMetadata bounds what a commit says of messages that are done ahead
	// of it, in bytes; it must not be above the broker's
	// offset.metadata.max.bytes. -1: nothing is said, and such messages are
	// handled again by the next owner. Default: 4096.
	CommitMetadata int `yaml:"commit_metadata" min:"-1"`
	// MetadataAge is how soon new partitions of a topic are found. Default: 1m.
	MetadataAge time.Duration `yaml:"metadata_age"`
	// Isolation is "read_committed", or "read_uncommitted", which also hands
	// out what an aborted transaction has written. Default: read_committed.
	Isolation string `yaml:"isolation" enum:"read_committed,read_uncommitted"`
	// OnOutOfRange says where to go on if the broker no longer has a group's
	// position: "earliest", "latest", or "fail", which holds the consumer
	// until somebody sets the position. Default: earliest.
	OnOutOfRange string `yaml:"on_out_of_range" enum:"earliest,latest,fail"`
	// MaxBatchBytes is the largest size to which a compressed batch may grow.
	// Its partition stands still before a larger one. Default: 64 MiB.
	MaxBatchBytes int `yaml:"max_batch_bytes" min:"0" max:"1073741824"`

	// Compression of what is published: snappy, lz4, zstd, gzip or none.
	// Default: snappy.
	Compression string `yaml:"compression" enum:"snappy,lz4,zstd,gzip,none"`
	// MaxMessageBytes is the largest batch that is sent to a topic whose
	// max.message.bytes may not be read. The default is the broker's own. Default: 1048588.
	MaxMessageBytes int `yaml:"max_message_bytes" min:"0" max:"1073741824"`

	// Partitions of a topic that is made; a dead letter has one. Default: 8.
	Partitions int `yaml:"partitions" min:"0"`
	// Replication is how many brokers have a copy of a topic that is made.
	// Default: the broker's default.replication.factor.
	Replication int `yaml:"replication" min:"0" max:"32767"`
	// MinISR is how many copies must be written before a publish is confirmed,
	// for a topic that is made. Default: the broker's min.insync.replicas.
	MinISR int `yaml:"min_isr" min:"0"`

	asked struct{ partitions bool } // was said, and is not the default
}

// TLS of connections. Files are read again for each connection.
type TLS struct {
	CA         string `yaml:"ca"`          // PEM file of authorities; default: the system's
	Cert       string `yaml:"cert"`        // PEM file of the client's certificate
	Key        string `yaml:"key"`         // PEM file of its key
	ServerName string `yaml:"server_name"` // in the broker's certificate; default: the host that is dialed
	// Insecure trusts any certificate: for tests.
	Insecure bool `yaml:"insecure"`
}

// SASL is a way to log in.
type SASL struct {
	// Mechanism is how the secret is shown: plain and oauthbearer send it, and
	// so want tls. Required.
	Mechanism string        `yaml:"mechanism" enum:"plain,scram-sha-256,scram-sha-512,oauthbearer" required:"true"`
	Token     config.Secret `yaml:"token"`      // of oauthbearer
	TokenFile string        `yaml:"token_file"` // in its place; read again for each connection
	// Plaintext allows plain and oauthbearer without TLS, which show the
	// secret to the network.
	Plaintext bool `yaml:"plaintext"`
}

// Values of options, and their defaults.
const (
	balanceSticky   = "cooperative-sticky"
	protocolClassic = "classic"
	protocolServer  = "consumer"
	readCommitted   = "read_committed"
	rangeEarliest   = "earliest"
	rangeLatest     = "latest"
	rangeFail       = "fail"

	defaultRebalance  = time.Minute
	defaultDrain      = 5 * time.Second
	defaultSession    = 45 * time.Second
	defaultCommit     = 20 * time.Millisecond
	defaultMetadata   = 4096
	defaultMaxBatch   = 64 << 20
	defaultMaxMessage = 1048588
	defaultPartitions = 8
)

// ParseURL reads kafka://HOST:PORT,HOST:PORT. All else goes into
// broker: {kafka: {…}}.
func ParseURL(rawURL string) (Options, error) {
	rest, ok := strings.CutPrefix(rawURL, "kafka://")
	if !ok {
		return Options{}, errors.New("kafka broker: the URL does not begin with kafka://")
	}
	switch rest = strings.TrimSuffix(rest, "/"); {
	case strings.Contains(rest, "@"):
		return Options{}, errors.New("kafka broker: the URL takes no user: write broker: {kafka: {brokers: […], sasl: {mechanism: …}, username: …, password: …}}")
	case strings.ContainsAny(rest, "/?#"):
		return Options{}, errors.New("kafka broker: the URL takes hosts and no more: options go into broker: {kafka: {brokers: […], …}}")
	case rest == "":
		return Options{}, nil
	}
	return Options{Brokers: strings.Split(rest, ",")}, nil
}

// complete fills in defaults, and refuses what makes no sense.
func (o *Options) complete() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("kafka broker: "+format, args...)) }
	if len(o.Brokers) == 0 {
		bad("no broker is named; write kafka://host:9092")
	}
	for _, b := range o.Brokers {
		switch _, port, err := net.SplitHostPort(b); {
		case strings.Contains(b, "@"): // what stands before it may be a password
			bad("brokers: one has an @: want host:port alone; a login goes into sasl, username and password")
		case err != nil || port == "":
			bad("broker %q: want host:port", b)
		}
	}
	o.asked.partitions = o.Partitions > 0
	fill(&o.ClientID, "leat")
	fill(&o.GroupProtocol, protocolClassic)
	fill(&o.Isolation, readCommitted)
	fill(&o.OnOutOfRange, rangeEarliest)
	fill(&o.Compression, "snappy")
	fill(&o.RebalanceTimeout, defaultRebalance)
	fill(&o.RebalanceDrain, min(defaultDrain, o.RebalanceTimeout/2))
	fill(&o.CommitInterval, defaultCommit)
	fill(&o.CommitMetadata, defaultMetadata)
	fill(&o.MetadataAge, time.Minute)
	fill(&o.MaxBatchBytes, defaultMaxBatch)
	fill(&o.MaxMessageBytes, defaultMaxMessage)
	fill(&o.Partitions, defaultPartitions)
	if o.GroupProtocol == protocolClassic {
		fill(&o.SessionTimeout, defaultSession)
		if len(o.Balancers) == 0 {
			o.Balancers = []string{balanceSticky}
		}
	}
	for name, d := range map[string]time.Duration{
		"session_timeout": o.SessionTimeout, "rebalance_timeout": o.RebalanceTimeout, "rebalance_drain": o.RebalanceDrain,
		"commit_interval": o.CommitInterval, "metadata_age": o.MetadataAge,
	} {
		if d < 0 {
			bad("%s cannot be negative", name)
		}
	}
	if o.RebalanceDrain > o.RebalanceTimeout/2 {
		bad("rebalance_drain is %s: say at most half of rebalance_timeout, %s, or the group gives the partitions away meanwhile", o.RebalanceDrain, o.RebalanceTimeout)
	}
	for _, b := range o.Balancers {
		if balancers[b] == nil {
			bad("balancer %q: there is cooperative-sticky, sticky, range, roundrobin", b)
		}
	}
	if o.GroupProtocol == protocolServer && slices.ContainsFunc(o.Balancers, func(b string) bool { return b != "range" && b != "sticky" }) {
		bad("balancers with group_protocol consumer are the broker's: sticky or range, or leave them out")
	}
	for _, w := range []struct {
		what, is string
		known    []string
	}{
		{"group_protocol", o.GroupProtocol, []string{protocolClassic, protocolServer}},
		{"isolation", o.Isolation, []string{readCommitted, "read_uncommitted"}},
		{"on_out_of_range", o.OnOutOfRange, []string{rangeEarliest, rangeLatest, rangeFail}},
	} {
		if !slices.Contains(w.known, w.is) {
			bad("%s %q: there is %s", w.what, w.is, strings.Join(w.known, ", "))
		}
	}
	if _, ok := codecs[o.Compression]; !ok {
		bad("compression %q: there is snappy, lz4, zstd, gzip, none", o.Compression)
	}
	if o.Partitions < 0 || o.Replication < 0 || o.MinISR < 0 || o.MaxBatchBytes < 0 || o.MaxMessageBytes < 0 {
		bad("partitions, replication, min_isr, max_batch_bytes and max_message_bytes cannot be negative")
	}
	if o.Replication > 0 && o.MinISR > o.Replication {
		bad("min_isr %d is above replication %d: nothing could ever be published", o.MinISR, o.Replication)
	}
	errs = append(errs, o.checkSecurity()...)
	return transport.Refuse(errors.Join(errs...))
}

// In takes the names of files that are relative from a folder.
func (o Options) In(dir string) Options {
	files := []*string{&o.PasswordFile}
	if o.TLS != nil {
		t := *o.TLS
		o.TLS = &t
		files = append(files, &t.CA, &t.Cert, &t.Key)
	}
	if o.SASL != nil {
		s := *o.SASL
		o.SASL = &s
		files = append(files, &s.TokenFile)
	}
	for _, f := range files {
		if *f != "" && !filepath.IsAbs(*f) {
			*f = filepath.Join(dir, *f)
		}
	}
	return o
}

func fill[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}
