package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/runtime/transport"
)

type publishCommand struct {
	brokerFlags

	Topic   string   `arg:"" help:"Where to publish."`
	Payload *string  `arg:"" optional:"" help:"The message. Without it, and without --file, JSON lines are read from standard input: {\"id\", \"key\", \"headers\", \"payload\"}, of which only payload must be there: a string, or any JSON as its own text."`
	File    string   `placeholder:"FILE" help:"Publish a file's content as one message."`
	Key     string   `help:"Message key; for lines that have none."`
	Header  []string `short:"H" sep:"none" placeholder:"NAME=VALUE" help:"Header; for lines that do not have it."`
	ID      string   `name:"id" help:"Message id. Default: a random one."`
	Rate    rate     `placeholder:"N/s" help:"At most so many: 100/s, 30/m."`
	Verbose bool     `short:"v" help:"Print the id of each message."`
}

// brokerTimeout bounds one exchange with the broker.
const brokerTimeout = 30 * time.Second

// Run declares what the consumers of the file read, so that nothing published
// is missed, and publishes.
func (c *publishCommand) Run(ctx context.Context, p *process) (err error) {
	lines, err := c.lines(p)
	if err != nil {
		return err
	}
	b, err := c.open(p)
	if err != nil {
		return err
	}
	closing := context.WithoutCancel(ctx)
	defer func() { err = errors.Join(err, b.transport.Close(closing)) }()
	declaring, cancel := context.WithTimeout(ctx, brokerTimeout)
	defer cancel()
	if err := b.transport.Declare(declaring, b.topology, b.declarations...); err != nil {
		return fmt.Errorf("declare: %w", err)
	}
	producer, err := b.transport.OpenProducer(declaring)
	if err != nil {
		return fmt.Errorf("producer: %w", err)
	}
	defer func() { err = errors.Join(err, producer.Close(closing)) }()

	s := sender{producer: producer, topic: c.Topic, pace: pacer{interval: time.Duration(c.Rate)}}
	if c.Verbose {
		s.ids = p.out
	}
	if err := s.send(ctx, lines); err != nil {
		return err
	}
	_, err = fmt.Fprintf(p.out, "published %d\n", s.published)
	return err
}

// target is where to publish, and what is to be there before.
type target struct {
	transport    transport.Transport
	topology     transport.Topology
	declarations []transport.Declaration
}

func (c *publishCommand) open(p *process) (*target, error) {
	b := &target{topology: transport.TopologyDeclare, declarations: []transport.Declaration{{Topic: c.Topic}}}
	opened, cfg, err := c.brokerFlags.open(p)
	if err != nil {
		return nil, err
	}
	b.transport = opened
	if cfg != nil {
		b.topology = transport.Topology(cfg.Topology)
		b.declarations = append(b.declarations, readBy(cfg, c.entry())...)
	}
	if caps := b.transport.Capabilities(); !caps.Durable && !caps.Networked {
		return nil, usageError("this broker lives within one process: a worker that runs would not see the message")
	}
	return b, nil
}

// readBy is every topic and group that consumers of a broker read.
func readBy(cfg *config.Config, broker string) []transport.Declaration {
	var out []transport.Declaration
	for i := range cfg.Consumers {
		c := &cfg.Consumers[i]
		if c.Broker != broker {
			continue
		}
		for _, topic := range c.Topics {
			out = append(out, transport.Declaration{Topic: topic, Group: c.Group, Start: transport.Start(c.Start)})
		}
	}
	return out
}

// lines is what to publish: one message, or those of standard input.
func (c *publishCommand) lines(p *process) (<-chan line, error) {
	headers := message.Metadata{}
	for _, h := range c.Header {
		name, value, ok := strings.Cut(h, "=")
		if !ok || name == "" {
			return nil, usageError(fmt.Sprintf("-H %q: write NAME=VALUE", h))
		}
		if err := checkHeader(name); err != nil {
			return nil, usageError("-H: " + err.Error())
		}
		headers[name] = value
	}
	if c.Key != "" {
		headers[transport.KeyHeader] = c.Key
	}
	if c.Payload == nil && c.File == "" {
		switch {
		case c.ID != "":
			return nil, usageError("--id names one message: put ids into the lines")
		case isTerminal(p.in):
			return nil, usageError("no message: give it as an argument, by --file, or as JSON lines on standard input")
		}
		return readLines(p.in, headers), nil
	}
	m := &message.Message{UUID: c.ID, Metadata: headers}
	switch {
	case c.Payload != nil && *c.Payload == "-":
		return nil, usageError("publish -: leave the message out to have JSON lines read from standard input, or give one body by --file /dev/stdin")
	case c.Payload != nil && c.File != "":
		return nil, usageError("a payload and --file cannot both be the message")
	case c.Payload != nil:
		m.Payload = message.Payload(*c.Payload)
	default:
		content, err := os.ReadFile(c.File)
		if err != nil {
			return nil, fmt.Errorf("payload: %w", err)
		}
		m.Payload = content
	}
	if m.UUID == "" {
		m.UUID = uuid.NewString()
	}
	one := make(chan line, 1)
	one <- line{msg: m}
	close(one)
	return one, nil
}
