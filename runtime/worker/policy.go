package worker

import (
	"strings"

	"github.com/tidwall/gjson"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/runtime/transport"
)

// policyOf translates what the file says of a consumer; links are left out.
func policyOf(c *config.Consumer) (transport.Policy, error) {
	r := c.Retry
	b := transport.Backoff{
		Attempts: r.Attempts, InitialInterval: r.InitialInterval.Std(), MaxInterval: r.MaxInterval.Std(),
		Multiplier: r.Multiplier, Jitter: r.Jitter,
	}
	if b.Jitter == 0 {
		b.Jitter = -1 // the zero of the file is none
	}
	retry, err := transport.NewRetryPolicy(b)
	if err != nil {
		return transport.Policy{}, err
	}
	p := transport.Policy{
		Topics: c.Topics[1:], Group: c.Group, Start: transport.Start(c.Start),
		Concurrency: c.Concurrency, Prefetch: c.Prefetch, PrefetchBytes: int64(c.PrefetchBytes),
		Order:   transport.Order(c.OrderedBy.Mode),
		Retry:   retry,
		Timeout: c.Timeout.Std(),

		RetryOrder: transport.RetryOrder(r.Order), MaxPark: r.MaxPark.Std(),
		DeadLetter:   deadLetterOf(c.DeadLetter),
		AckOnReceive: c.Ack == config.AckOnReceive,
		PublishTo:    c.PublishTo.Topic,
	}
	if c.OrderedBy.Key != "" {
		p.OrderKey = orderKey(c.OrderedBy.Key)
	}
	return p, nil
}

func deadLetterOf(d config.DeadLetter) transport.DeadLetter {
	switch d {
	case config.DeadLetterDrop:
		return transport.DeadLetter{Mode: transport.DeadDrop}
	case config.DeadLetterBlock:
		return transport.DeadLetter{Mode: transport.DeadBlock}
	case config.DefaultDeadLetter:
	}
	return transport.DeadLetter{Mode: transport.DeadToTopic, Topic: string(d)}
}

// orderKey reads metadata.NAME or payload.PATH; a message that has neither is
// in no order.
func orderKey(from string) func(*transport.Delivery) string {
	where, path, _ := strings.Cut(from, ".")
	if where == "metadata" {
		return func(d *transport.Delivery) string { return d.Headers.Get(path) }
	}
	return func(d *transport.Delivery) string { return gjson.GetBytes(d.Payload, path).String() }
}
