package amqp

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/runtime/transport"
)

// Options configures RabbitMQ as a broker. The zero value of a field means its
// default.
type Options struct {
	// URL is amqp://user:password@host:5672/vhost, or amqps://…; its parts
	// are percent-encoded. Of a cluster it has several hosts, separated by
	// commas: a connection goes to any of them that is there. Required.
	URL config.Secret `yaml:"url"`
	// Username stands for that of the URL, and needs no encoding.
	Username string `yaml:"username"`
	// Password stands for that of the URL, and needs no encoding.
	Password config.Secret `yaml:"password"`
	// PasswordFile holds the password. It is read at every connection, so a
	// rotated secret needs no restart. A relative path starts from the folder of the YAML file.
	PasswordFile string `yaml:"password_file"`
	// TLS is for amqps:// and says what differs from the system's defaults.
	TLS TLSOptions `yaml:"tls"`

	// QueueType of the queues that are made: quorum or classic. Default: quorum.
	QueueType string `yaml:"queue_type" enum:"quorum,classic"`
	// SingleActive has one consumer at a time take from each queue, the
	// others stand by: so the order of a key holds over all instances. Default: false.
	SingleActive bool `yaml:"single_active"`
	// Unrouted says what a publish comes to that no queue takes: fail, and it
	// is tried again, or drop. Default: fail.
	Unrouted string `yaml:"unrouted" enum:"fail,drop"`
	// QueueDeleted says what is done about a queue that is deleted under its
	// consumer: declare it again, loudly, or stop that consumer. Default: declare.
	QueueDeleted string `yaml:"queue_deleted" enum:"declare,stop"`
	// Topics says where topics are found that are not an exchange of their
	// name with a queue for each group.
	Topics map[string]TopicOptions `yaml:"topics"`

	// Heartbeat is how often each side has to be heard of. A peer that is
	// silent for one and a half of it is lost. Default: 10s.
	Heartbeat time.Duration `yaml:"heartbeat" min:"0s"`
	// ConnectTimeout bounds one try to connect to one host. Default: 10s.
	ConnectTimeout time.Duration `yaml:"connect_timeout" min:"0s"`
	// PublishTimeout bounds the wait for a confirmation. Default: 30s.
	PublishTimeout time.Duration `yaml:"publish_timeout" min:"0s"`
	// MaxMessage is the largest body that is published: the broker's
	// max_message_size. Default: 16MiB.
	MaxMessage config.Size `yaml:"max_message"`
	// ConsumerTimeout is the broker's consumer_timeout, after which it takes
	// a delivery back. Lint holds it against prefetch and timeout. Default: 30m.
	ConsumerTimeout time.Duration `yaml:"consumer_timeout" min:"0s"`

	// Dir is where relative paths start.
	Dir string `yaml:"-"`
	// Name begins the names of connections, as the broker lists them.
	Name string `yaml:"-"`
	// ReadOnly says that nothing may be declared: so nothing can be delayed by the broker.
	ReadOnly bool `yaml:"-"`
	// Log is told of what concerns no single consumer; nil: nobody is.
	Log *slog.Logger `yaml:"-"`
}

// TLSOptions are files in PEM, read at every connection.
type TLSOptions struct {
	// CA is the file of the certificates to trust. Default: the system's.
	CA string `yaml:"ca"`
	// Cert is the file of the client's own certificate, for mutual TLS.
	Cert string `yaml:"cert"`
	// Key is the file of the key of that certificate.
	Key string `yaml:"key"`
	// ServerName is the name in the broker's certificate. Default: the host that is dialled.
	ServerName string `yaml:"server_name"`
	// External has the certificate say who the client is (SASL EXTERNAL), in
	// place of user and password. Default: false.
	External bool `yaml:"external"`
}

// TopicOptions say where a topic is found. What is named and not given a type
// is used as it is, and never declared.
type TopicOptions struct {
	// Exchange of the topic. Default: one of the topic's name; where only a
	// queue is named, the queue itself.
	Exchange string `yaml:"exchange"`
	// Type of the exchange, which is then declared: fanout, topic, direct or
	// headers. Default: fanout; of an exchange that is named, whatever it is.
	Type string `yaml:"type" enum:"fanout,topic,direct,headers"`
	// RoutingKey of what is published. Default: none; the queue's name where
	// only a queue is named.
	RoutingKey string `yaml:"routing_key"`
	// Bindings are the routing keys by which a group's queue is bound.
	// Default: the RoutingKey.
	Bindings []string `yaml:"bindings"`
	// Queue is one that exists, in place of {topic}--{group}. All groups of
	// the topic share it.
	Queue string `yaml:"queue"`
}

// Values of the options that are words.
const (
	quorum  = "quorum"
	classic = "classic"
	drop    = "drop"
	stop    = "stop"
)

// complete fills in defaults and refuses what makes no sense. Its error never
// shows the URL.
func (o *Options) complete() (target, error) {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&o.Heartbeat, 10*time.Second)
	def(&o.ConnectTimeout, 10*time.Second)
	def(&o.PublishTimeout, 30*time.Second)
	def(&o.ConsumerTimeout, 30*time.Minute)
	if o.QueueType == "" {
		o.QueueType = quorum
	}
	if o.MaxMessage == 0 {
		o.MaxMessage = 16 << 20
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	t, err := parseURL(o.URL.Reveal())
	if err != nil {
		return t, err
	}
	if o.Username != "" {
		t.username = o.Username
	}
	if !o.Password.IsZero() {
		t.password = o.Password
	}
	switch {
	case o.Heartbeat < time.Second:
		return t, fmt.Errorf("amqp broker: heartbeat is %s: say at least 1s", o.Heartbeat)
	case !o.Password.IsZero() && o.PasswordFile != "":
		return t, errors.New("amqp broker: password and password_file are both there: keep one of them")
	case (o.TLS.Cert == "") != (o.TLS.Key == ""):
		return t, errors.New("amqp broker: tls.cert and tls.key go together")
	case o.TLS != (TLSOptions{}) && !t.secure:
		return t, errors.New("amqp broker: tls is there, but the URL is amqp://: write amqps://")
	case o.TLS.External && o.TLS.Cert == "":
		return t, errors.New("amqp broker: tls.external needs a certificate: tls.cert and tls.key")
	}
	for name, topic := range o.Topics {
		if err := transport.CheckName("topic", name); err != nil {
			return t, fmt.Errorf("amqp broker: topics: %w", err)
		}
		for what, name := range map[string]string{"exchange": topic.Exchange, "queue": topic.Queue, "routing_key": topic.RoutingKey} {
			if len(name) > maxShort {
				return t, fmt.Errorf("amqp broker: topics: the %s has %d bytes, at most %d are legal", what, len(name), maxShort)
			}
		}
	}
	return t, nil
}
