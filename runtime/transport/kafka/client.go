package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/leat-io/leat/runtime/transport"
)

// retryTimeout is how long one request is tried before its error is told;
// whoever asked tries again, and says so.
const retryTimeout = 5 * time.Second

var balancers = map[string]func() kgo.GroupBalancer{
	balanceSticky: kgo.CooperativeStickyBalancer,
	"sticky":      kgo.StickyBalancer,
	"range":       kgo.RangeBalancer,
	"roundrobin":  kgo.RoundRobinBalancer,
}

var codecs = map[string]kgo.CompressionCodec{
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
	"gzip":   kgo.GzipCompression(),
	"none":   kgo.NoCompression(),
}

// client makes a connection to the cluster; it dials when it is first used.
func (t *Transport) client(more ...kgo.Opt) (*kgo.Client, error) {
	opts := []kgo.Opt{
		kgo.SeedBrokers(t.o.Brokers...),
		kgo.ClientID(t.o.ClientID),
		kgo.Dialer(t.dial),
		kgo.MetadataMaxAge(t.o.MetadataAge),
		kgo.MetadataMinAge(min(t.o.MetadataAge, time.Second)),
		kgo.DisableClientMetrics(),
		kgo.MaxDecompressBatchBytes(t.o.MaxBatchBytes),
	}
	if t.o.SASL != nil {
		opts = append(opts, kgo.SASL(t.o.mechanism()))
	}
	c, err := kgo.NewClient(append(opts, more...)...)
	if err != nil {
		return nil, transport.Refuse(fmt.Errorf("kafka broker: %w", err))
	}
	return c, nil
}

// logger has the client's own words in the log at level debug: what matters of
// them comes as an error, and once.
type logger struct{ *slog.Logger }

func (l logger) Level() kgo.LogLevel {
	if l.Enabled(context.Background(), slog.LevelDebug) {
		return kgo.LogLevelInfo
	}
	return kgo.LogLevelNone
}

func (l logger) Log(_ kgo.LogLevel, msg string, keyvals ...any) {
	l.Debug("kafka client", "says", msg, slog.Group("detail", keyvals...))
}

// permanent are answers that waiting does not mend.
var permanent = []error{
	kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState,
	kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed, kerr.ClusterAuthorizationFailed, kerr.TransactionalIDAuthorizationFailed,
	kerr.InvalidTopicException, kerr.InvalidGroupID, kerr.InvalidPartitions, kerr.InvalidReplicationFactor, kerr.InvalidConfig, kerr.PolicyViolation,
	kerr.InconsistentGroupProtocol, kerr.InvalidSessionTimeout, kerr.UnsupportedVersion, kerr.UnsupportedAssignor, kerr.GroupMaxSizeReached,
}

// refuse marks what waiting does not mend, and says how to mend what people
// commonly get wrong.
func refuse(err error) error {
	if err == nil || transport.Refused(err) {
		return err
	}
	if hint := hintOf(err); hint != "" {
		err = fmt.Errorf("%w: %s", err, hint)
	}
	if isPermanent(err) {
		return transport.Refuse(err)
	}
	return err
}

func isPermanent(err error) bool {
	for _, p := range permanent {
		if errors.Is(err, p) {
			return true
		}
	}
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	_, authority := errors.AsType[x509.UnknownAuthorityError](err)
	_, host := errors.AsType[x509.HostnameError](err)
	_, noTLS := errors.AsType[tls.RecordHeaderError](err)
	return certificate || authority || host || noTLS || wantsCertificate(err)
}

// wantsCertificate tells whether a broker refuses the client's certificate, or
// misses one. The alert that says so has no type that could be asked for.
func wantsCertificate(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == remoteAlert && strings.Contains(op.Error(), "certificate")
}

// remoteAlert is the operation of errors by which the other side of TLS ends it.
const remoteAlert = "remote error"

// refusals are answers to a login.
var refusals = []error{kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState}

// from names the brokers that were asked, where none has let us in.
func (t *Transport) from(err error) error {
	_, answer := errors.AsType[*kerr.Error](err)
	login := slices.ContainsFunc(refusals, func(r error) bool { return errors.Is(err, r) })
	if err == nil || answer && !login || transport.Refused(err) {
		return err
	}
	return fmt.Errorf("brokers %s: %w", strings.Join(t.o.Brokers, ","), err)
}

func hintOf(err error) string {
	_, unlike := errors.AsType[*kgo.ErrFirstReadEOF](err) // has a hint of its own
	switch _, noTLS := errors.AsType[tls.RecordHeaderError](err); {
	case errors.Is(err, io.EOF) && !unlike:
		return "the broker closes the connection, as it does with a login that it does not know: see sasl, username and password"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "the broker takes the connection and does not answer: see that Kafka is what listens there"
	case errors.Is(err, kerr.SaslAuthenticationFailed):
		return "the broker does not take this login: see username and password, or sasl.token"
	case errors.Is(err, kerr.IllegalSaslState):
		return "the broker wants no login at this port: leave sasl out, or name the port that has one"
	case errors.Is(err, kerr.UnsupportedSaslMechanism):
		return "see sasl.mechanism"
	case unlike:
		return "see tls and sasl, and that the port is one for them"
	case strings.Contains(err.Error(), "tls alert record"):
		return "the port is one for TLS: add tls: {}"
	case strings.Contains(err.Error(), " response size "): // the client has no type for it
		return "something else answers there: is that the port of a Kafka?"
	case wantsCertificate(err):
		return "the broker wants a certificate of this client that it trusts: see tls.cert and tls.key"
	case noTLS:
		return "the broker does not speak TLS at this port: leave tls out, or name its TLS port"
	case errors.Is(err, kerr.InconsistentGroupProtocol):
		return "the members of the group share out partitions in another way: give balancers one that they know too, such as [cooperative-sticky, range], or use another group"
	case errors.Is(err, kerr.UnreleasedInstanceID):
		return "another member has this static id, or had it when it was killed: give each worker a name of its own (--instance, LEAT_INSTANCE), or wait for the broker's group.consumer.session.timeout.ms"
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		return "the user needs Read on the group"
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return "the user needs Read and Describe on topics it consumes, Write on those it publishes to, and Create to make them"
	case errors.Is(err, kerr.InvalidSessionTimeout):
		return "session_timeout is outside of the broker's group.min.session.timeout.ms and group.max.session.timeout.ms"
	}
	return ""
}
