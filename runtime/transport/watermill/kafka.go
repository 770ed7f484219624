package watermill

import (
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
	wm "github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/runtime/transport"
)

// KafkaOptions are those of the kind watermill-kafka.
type KafkaOptions struct {
	// Brokers are host:port, at least one.
	Brokers []string `yaml:"brokers"`
	// TLS encrypts. Default: off.
	TLS *TLSOptions `yaml:"tls"`
	// Username to log in with. Default: no login.
	Username string `yaml:"username"`
	// Password to log in with.
	Password config.Secret `yaml:"password"`
	// SASL says how.
	SASL SASLOptions `yaml:"sasl"`
	// Version of the protocol, as sarama knows it. Default: 2.8.0.
	Version string `yaml:"version"`
	// Partitions of a topic that is made. Default: 8.
	Partitions int `yaml:"partitions" min:"0"`
	// Replication of a topic that is made. Default: the broker's own.
	Replication int `yaml:"replication" min:"0"`
	// CommitInterval is how often offsets are committed; so much work comes
	// again after a crash. Default: 250ms.
	CommitInterval time.Duration `yaml:"commit_interval" min:"1ms"`
	// SessionTimeout is how long a member that is not heard of keeps its
	// partitions. Default: 10s.
	SessionTimeout time.Duration `yaml:"session_timeout"`
	// InFlight is how many messages of one partition are in flight at once.
	// Default: 32.
	InFlight int `yaml:"in_flight" min:"0"`
	// MaxMessageBytes bounds a message and a batch of them. Default: 1000000.
	MaxMessageBytes int `yaml:"max_message_bytes" min:"0"`
}

// SASLOptions are how to log in.
type SASLOptions struct {
	// Mechanism is plain, scram-sha-256 or scram-sha-512. Default: plain.
	Mechanism string `yaml:"mechanism" enum:"plain,scram-sha-256,scram-sha-512"`
}

// Kafka is watermill-kafka. Its Subscriber has one message of a partition in
// flight; here several readers of it share a partition, whose offset moves only
// over what all of them have finished.
func Kafka(o KafkaOptions) (transport.Transport, error) {
	if len(o.Brokers) == 0 {
		return nil, errors.New("watermill-kafka: brokers is empty: name at least one host:port")
	}
	if _, err := o.sarama(); err != nil {
		return nil, fmt.Errorf("watermill-kafka: %w", err)
	}
	k := &kafkaKind{o}
	t := &adapter{kind: "watermill-kafka", caps: capabilities(), source: k.source, publisher: k.publisher, declare: k.declare}
	t.caps.KeyOrder = transport.ScopeGroup
	t.caps.StableCoordinates = true
	t.caps.History = true
	t.caps.Durable = true
	return t, nil
}

type kafkaKind struct{ KafkaOptions }

func (k *kafkaKind) source(cfg transport.ConsumerConfig, log wm.LoggerAdapter) (*source, error) {
	c, err := k.sarama()
	if err != nil {
		return nil, err
	}
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	if cfg.Start == transport.StartLatest {
		c.Consumer.Offsets.Initial = sarama.OffsetNewest
	}
	claims := &claims{inFlight: k.InFlight}
	if claims.inFlight == 0 {
		claims.inFlight = 32
	}
	sub, err := kafka.NewSubscriber(kafka.SubscriberConfig{
		Brokers: k.Brokers, Unmarshaler: kafkaMarshaler{}, ConsumerGroup: cfg.Group, OverwriteSaramaConfig: c, Tracer: claims,
	}, log)
	if err != nil {
		return nil, refuseKafka(err)
	}
	return &source{sub: sub, read: readKafka, claims: claims}, nil
}

func (k *kafkaKind) publisher() (transport.Producer, error) {
	c, err := k.sarama()
	if err != nil {
		return nil, err
	}
	pub, err := kafka.NewPublisher(kafka.PublisherConfig{Brokers: k.Brokers, Marshaler: kafkaMarshaler{}, OverwriteSaramaConfig: c}, nil)
	if err != nil {
		return nil, refuseKafka(err)
	}
	return &producer{pub: pub, single: true, never: neverKafka}, nil
}

// sarama is the client's configuration. Its own default takes a message for
// published that one broker alone has.
func (o *KafkaOptions) sarama() (*sarama.Config, error) {
	c := sarama.NewConfig()
	c.ClientID = "leat"
	version := o.Version
	if version == "" {
		version = "2.8.0"
	}
	var err error
	if c.Version, err = sarama.ParseKafkaVersion(version); err != nil {
		return nil, fmt.Errorf("version: %w", err)
	}
	c.Consumer.Return.Errors = true
	c.Consumer.Offsets.AutoCommit.Interval = 250 * time.Millisecond
	if o.CommitInterval > 0 {
		c.Consumer.Offsets.AutoCommit.Interval = o.CommitInterval
	}
	if o.SessionTimeout > 0 {
		c.Consumer.Group.Session.Timeout = o.SessionTimeout
		c.Consumer.Group.Heartbeat.Interval = o.SessionTimeout / 3
	}
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Net.MaxOpenRequests = 1 // or a retry overtakes; as an idempotent producer, sarama retries without a pause
	c.Producer.Return.Successes = true
	c.Producer.Retry.Max = 10
	if o.MaxMessageBytes > 0 {
		c.Producer.MaxMessageBytes = o.MaxMessageBytes
	}
	if o.TLS != nil {
		c.Net.TLS.Enable = true
		if c.Net.TLS.Config, err = o.TLS.config(); err != nil {
			return nil, err
		}
	}
	o.login(c)
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return c, nil
}

// refuseKafka marks what no waiting mends.
func refuseKafka(err error) error {
	for _, never := range []error{
		sarama.ErrSASLAuthenticationFailed, sarama.ErrUnsupportedSASLMechanism, sarama.ErrTopicAuthorizationFailed,
		sarama.ErrGroupAuthorizationFailed, sarama.ErrClusterAuthorizationFailed, sarama.ErrInvalidTopic,
		sarama.ErrInvalidReplicationFactor, sarama.ErrPolicyViolation,
	} {
		if errors.Is(err, never) {
			return transport.Refuse(err)
		}
	}
	return err
}

// neverKafka tells what can never be published.
func neverKafka(err error) bool {
	return errors.Is(err, sarama.ErrMessageSizeTooLarge) || errors.Is(err, sarama.ErrTopicAuthorizationFailed) ||
		errors.Is(err, sarama.ErrInvalidTopic) || errors.As(err, new(sarama.ConfigurationError))
}
