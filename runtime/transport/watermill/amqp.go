package watermill

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	wm "github.com/ThreeDotsLabs/watermill"
	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/runtime/transport"
)

// AMQPOptions are those of the kind watermill-amqp.
type AMQPOptions struct {
	// URL is amqp://user:password@host:5672/vhost, or amqps://….
	URL config.Secret `yaml:"url" required:"true"`
	// Username takes the place of the URL's, and needs no encoding.
	Username string `yaml:"username"`
	// Password takes the place of the URL's, likewise.
	Password config.Secret `yaml:"password"`
	// TLS is for amqps. Default: the system's certificates.
	TLS *TLSOptions `yaml:"tls"`
	// Exchange is what a topic is: fanout, an exchange of that name, to which
	// queues are bound; or none, where messages go to the queue of that name.
	// Default: fanout.
	Exchange string `yaml:"exchange" enum:"fanout,none"`
	// Queue names the queue of a group; where exchange is none, it is {topic}
	// unless it is named. Default: {topic}--{group}.
	Queue string `yaml:"queue"`
	// QueueType of a queue that is made: quorum or classic. Default: quorum.
	QueueType string `yaml:"queue_type" enum:"quorum,classic"`
	// Subscriptions is how many messages of a topic are in flight at once, where
	// a consumer keeps no order: one that does has one. Default: 32.
	Subscriptions int `yaml:"subscriptions" min:"0"`
	// Prefetch is how many messages the broker gives to each subscription, of
	// which one is handed out. Default: 1.
	Prefetch int `yaml:"prefetch" min:"0"`
	// Unrouted says what a publish comes to that no queue takes: fail, and it
	// is tried again, or drop. Default: fail.
	Unrouted string `yaml:"unrouted" enum:"fail,drop"`
	// Heartbeat of the connections. Default: 10s.
	Heartbeat time.Duration `yaml:"heartbeat" min:"1s"`
}

// AMQP is watermill-amqp for reading. Messages are published by a producer of
// ours: theirs confirms nothing unless told to, and never hears that a message
// found no queue.
func AMQP(o AMQPOptions) (transport.Transport, error) {
	u, err := url.Parse(o.URL.Reveal())
	if err != nil || u.Scheme != "amqp" && u.Scheme != "amqps" || u.Host == "" {
		return nil, errors.New("watermill-amqp: url is not one: want amqp://user:password@host:5672/vhost, with special characters escaped")
	}
	if o.Username != "" {
		u.User = url.UserPassword(o.Username, o.Password.Reveal())
	}
	k := &amqpKind{AMQPOptions: o, url: u.String()}
	if k.Exchange == "" {
		k.Exchange = "fanout"
	}
	if k.Queue == "" {
		k.Queue = "{topic}--{group}"
		if k.Exchange == "none" {
			k.Queue = "{topic}"
		}
	}
	if k.QueueType == "" {
		k.QueueType = "quorum"
	}
	if k.Prefetch == 0 {
		k.Prefetch = 1
	}
	if k.Heartbeat == 0 {
		k.Heartbeat = 10 * time.Second
	}
	t := &adapter{kind: "watermill-amqp", caps: capabilities(), source: k.source, publisher: k.publisher, declare: k.declare}
	if t.subscriptions = k.Subscriptions; t.subscriptions == 0 {
		t.subscriptions = 32
	}
	t.caps.Durable = true
	t.caps.InFlight = t.subscriptions
	t.caps.MaxNameLength = 120 // a queue has a topic and a group in its name, of 255
	return t, nil
}

type amqpKind struct {
	AMQPOptions

	url string
}

// queue names the queue of a group. It refuses what would make one queue of two pairs.
func (k *amqpKind) queue(topic, group string) (string, error) {
	name := strings.NewReplacer("{topic}", topic, "{group}", group).Replace(k.Queue)
	both := strings.Contains(k.Queue, "{topic}") && strings.Contains(k.Queue, "{group}")
	switch {
	case both && strings.Contains("-"+group+"-", "--"):
		return "", transport.Refuse(fmt.Errorf(`group name %q contains "--" or has "-" at an end, so the queue %q would be ambiguous: rename it`, group, name))
	case len(name) > maxQueue:
		return "", transport.Refuse(fmt.Errorf("queue name %q… has %d bytes, at most %d are legal", name[:32], len(name), maxQueue))
	default:
		return name, nil
	}
}

// maxQueue is the longest name of a queue, in bytes.
const maxQueue = 255

func (k *amqpKind) exchange(topic string) string {
	if k.Exchange == "none" {
		return ""
	}
	return topic
}

func (k *amqpKind) routingKey(topic string) string {
	if k.Exchange == "none" {
		return topic
	}
	return ""
}

func (k *amqpKind) source(cfg transport.ConsumerConfig, log wm.LoggerAdapter) (*source, error) {
	line := &line{}
	lost := make(chan error, 1)
	ac, err := k.config(line.dial)
	if err != nil {
		return nil, err
	}
	queues := make(map[string]string) // by topic
	sub, err := wmamqp.NewSubscriber(wmamqp.Config{
		Connection:      wmamqp.ConnectionConfig{AmqpURI: k.url, AmqpConfig: ac},
		Marshaler:       amqpMarshaler{gone: lost},
		Exchange:        wmamqp.ExchangeConfig{GenerateName: k.exchange},
		Queue:           wmamqp.QueueConfig{GenerateName: func(topic string) string { return queues[topic] }},
		Consume:         wmamqp.ConsumeConfig{Qos: wmamqp.QosConfig{PrefetchCount: k.Prefetch}},
		TopologyBuilder: trusting{},
	}, hearing{log, lost})
	if err != nil {
		return nil, refuseAMQP(err)
	}
	for _, topic := range cfg.Topics {
		if queues[topic], err = k.queueOf(sub.Connection(), topic, cfg.Group); err != nil {
			return nil, errors.Join(refuseAMQP(err), sub.Close())
		}
	}
	closed := sub.Connection().NotifyClose(make(chan *amqp.Error, 1))
	go func() {
		if err := <-closed; err != nil {
			select {
			case lost <- err:
			default:
			}
		}
	}()
	return &source{sub: sub, read: readNotes, lost: lost, cut: line.cut}, nil
}

// hearing is a logger that hears what a Subscriber tells nobody else: that a
// subscription has ended, or could not begin. It tries again, for ever.
type hearing struct {
	wm.LoggerAdapter

	gone chan<- error
}

// Error passes on.
func (h hearing) Error(msg string, err error, fields wm.LogFields) {
	switch msg {
	case "Failed to open channel", "Failed to start consuming messages", "Channel closed, stopping ProcessMessages":
		select {
		case h.gone <- errors.Join(errNoDelivery, err):
		default:
		}
	}
	h.LoggerAdapter.Error(msg, err, fields)
}

// With keeps listening.
func (h hearing) With(fields wm.LogFields) wm.LoggerAdapter {
	return hearing{h.LoggerAdapter.With(fields), h.gone}
}

// trusting builds no topology: that is Declare's.
type trusting struct{}

// BuildTopology does nothing.
func (trusting) BuildTopology(*amqp.Channel, string, string, wmamqp.Config, wm.LoggerAdapter) error {
	return nil
}

// ExchangeDeclare does nothing.
func (trusting) ExchangeDeclare(*amqp.Channel, string, wmamqp.Config) error { return nil }

func (k *amqpKind) config(dial func(network, addr string) (net.Conn, error)) (*amqp.Config, error) {
	c := &amqp.Config{Heartbeat: k.Heartbeat, Locale: "en_US", Dial: dial, Properties: amqp.NewConnectionProperties()}
	c.Properties.SetClientConnectionName("leat")
	if k.TLS != nil {
		var err error
		if c.TLSClientConfig, err = k.TLS.config(); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// dialTimeout bounds connecting, and the handshake that follows.
const dialTimeout = 10 * time.Second

// line is one network connection, and no second one: a Subscriber that
// reconnects by itself does not say so, and goes on trying after it was closed.
type line struct {
	mu   sync.Mutex
	used bool
	conn net.Conn
}

var errOneLine = errors.New("connection is over: the consumer opens another")

func (l *line) dial(network, addr string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.used {
		return nil, errOneLine
	}
	l.used = true
	conn, err := amqp.DefaultDial(dialTimeout)(network, addr)
	l.conn = conn
	return conn, err
}

// cut breaks the connection, also under a write that blocks since the broker
// has an alarm.
func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		_ = l.conn.Close()
	}
}

// refuseAMQP marks what no waiting mends.
func refuseAMQP(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, amqp.ErrCredentials) || errors.Is(err, amqp.ErrVhost) || errors.Is(err, amqp.ErrSASL) {
		return transport.Refuse(err)
	}
	if e, ok := errors.AsType[*amqp.Error](err); ok {
		switch e.Code {
		case amqp.AccessRefused, amqp.PreconditionFailed, amqp.NotAllowed:
			return transport.Refuse(err)
		}
	}
	return err
}
