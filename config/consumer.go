package config

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// Where a group without a position starts.
const (
	StartEarliest = "earliest"
	StartLatest   = "latest"
)

// Consumer is one entry under `consumers:`, with the defaults applied.
type Consumer struct {
	// Name is the key of the entry.
	Name string `yaml:"-"`
	// Broker names an entry under brokers. Empty means the main broker.
	Broker string `yaml:"broker"`
	// Topic is what is read, where that is one topic; Topics holds it too.
	Topic string `yaml:"topic"`
	// Topics are what is read, where that is more than one; at least one.
	Topics []string `yaml:"topics"`
	// Group is the logical reader. Defaults to the name of the worker, a dot, and that of the consumer.
	Group string `yaml:"group"`
	// Start is earliest or latest: where a group without a position begins. Defaults to earliest.
	Start string `yaml:"start" enum:"earliest,latest"`
	// Handler is what runs for each message.
	Handler Component `yaml:"handler"`
	// PublishTo is where the messages go that the handler returns: nowhere, unless it is set.
	PublishTo PublishTo `yaml:"publish_to"`

	Policy `yaml:",inline"`
}

// Consumers are in the file's order.
type Consumers []Consumer

// decodeNode leaves the entries to [Config.decode], which knows the defaults by then.
func (c *Consumers) decodeNode(*decoder, *node, string) {}

// consumers decodes every entry over the defaults.
func (c *Config) consumers(d *decoder) Consumers {
	entries := c.root.get("consumers")
	switch {
	case entries == nil || entries.null || entries.broken:
		return nil
	case entries.kind != mapNode:
		d.add(entries.at, "consumers", "consumers: %s where a map is due; write consumers: {name: {topic: …, handler: …}}", describe(entries))
		return nil
	case len(entries.fields) == 0:
		d.add(entries.at, "consumers", "consumers is empty; write at least one, with its topic and handler")
		return nil
	}
	var out Consumers
	for _, f := range entries.fields {
		path := child("consumers", f.key)
		consumer := Consumer{Name: f.key, Group: c.Name + "." + f.key, Start: StartEarliest, Policy: c.Defaults}
		n := f.value
		if n.broken {
			continue
		}
		if n.null {
			n = &node{kind: mapNode, at: f.at}
		}
		d.structure(n, reflect.ValueOf(&consumer).Elem(), path)
		consumer.finish(d, c, n, f.at, path)
		out = append(out, consumer)
	}
	return out
}

// finish fills what depends on other options, and checks what a tag can't.
func (c *Consumer) finish(d *decoder, config *Config, n *node, at place, path string) {
	if c.Prefetch == 0 {
		c.Prefetch = 8 * c.Concurrency
	}
	switch one, many := has(n, "topic"), has(n, "topics"); {
	case n.kind != mapNode:
		return
	case one && many:
		d.add(n.get("topics").at, path, "%s has both topic and topics; keep one of them", path)
	case one:
		c.Topics = []string{c.Topic}
	case many && n.get("topics").kind == listNode && len(n.get("topics").items) == 0:
		d.add(n.get("topics").at, path, "%s reads no topic; write topic: NAME", path)
	case !many && !d.meant[child(path, "topics")]:
		d.missing(n, "topic", at, child(path, "topic"), "%s reads no topic; write topic: NAME", path)
	}
	d.missing(n, "handler", at, child(path, "handler"), "%s has no handler; write handler: NAME", path)
	c.checkBroker(d, config, n.get("broker"), c.Broker, child(path, "broker"))
	if p := n.get("publish_to"); p != nil && p.get("broker") != nil {
		c.checkBroker(d, config, p.get("broker"), c.PublishTo.Broker, child(path, "publish_to.broker"))
	}
}

func (c *Consumer) checkBroker(d *decoder, config *Config, n *node, name, path string) {
	if n == nil || n.null || n.broken || n.kind != scalarNode {
		return
	}
	if config.root.get("brokers").get(name) == nil {
		known := slices.Sorted(maps.Keys(config.Brokers))
		if n.referred {
			d.add(n.at, path, "%s: %s is no entry under brokers", path, describe(n))
			return
		}
		hint := suggestion(name, known)
		if strings.Contains(name, "://") {
			hint = "; put the URL under brokers: and name that entry here"
		}
		d.add(n.at, path, "%s: %s is no entry under brokers%s", path, describe(n), hint)
	}
}

// PublishTo is a topic, on the consumer's own broker or another: `publish_to: payments.charged`, or {broker: audit, topic: …}.
type PublishTo struct {
	// Broker names an entry under brokers. Empty means the consumer's own broker.
	Broker string `yaml:"broker"`
	// Topic is where messages go.
	Topic string `yaml:"topic" required:"true"`
}

// IsZero says whether there is no such topic.
func (p PublishTo) IsZero() bool { return p.Topic == "" }

func (p *PublishTo) decodeNode(d *decoder, n *node, path string) {
	if n.kind == scalarNode {
		if *p = (PublishTo{Topic: n.value}); n.value == "" {
			d.add(n.at, path, "%s: the topic is empty", path)
		}
		return
	}
	d.structure(n, reflect.ValueOf(p).Elem(), path)
}

// What messages can be ordered by.
const (
	OrderedByKey       = "key"       // each key has its own lane
	OrderedByPartition = "partition" // the broker's own order
	OrderedByNone      = "none"      // no order
)

// OrderedBy is what keeps messages in order: `ordered_by: key`, partition or none, or {key: payload.customer_id} for lanes by
// something else than the message's key. The zero value leaves it to the transport.
type OrderedBy struct {
	// Mode is key, partition, none, or empty.
	Mode string
	// Key is where the lane's key comes from, metadata.NAME or payload.PATH. Empty means the message's own key.
	Key string
}

// String is the mode, or the expression of the key.
func (o OrderedBy) String() string {
	if o.Key != "" {
		return o.Key
	}
	return o.Mode
}

// orderedBy is the long form.
type orderedBy struct {
	// Key is where the lane's key comes from: metadata.NAME or payload.PATH.
	Key string `yaml:"key" required:"true"`
}

func (o *OrderedBy) decodeNode(d *decoder, n *node, path string) {
	if n.kind == scalarNode {
		var plain struct {
			Mode string `enum:"key,partition,none"`
		}
		v := reflect.ValueOf(&plain).Elem()
		d.scalar(n, v.Field(0), v.Type().Field(0).Tag, path)
		*o = OrderedBy{Mode: plain.Mode}
		return
	}
	var by orderedBy
	d.structure(n, reflect.ValueOf(&by).Elem(), path)
	if key := n.get("key"); key != nil && key.kind == scalarNode && !key.null && !key.broken && !isExpression(by.Key) {
		d.add(key.at, child(path, "key"), "%s: %s is not where a key is; write metadata.NAME or payload.PATH", child(path, "key"), describe(key))
	}
	*o = OrderedBy{Mode: OrderedByKey, Key: by.Key}
}

var expression = regexp.MustCompile(`^(metadata|payload)\.\S`)

// isExpression says whether a text names a place in a message: metadata.NAME or payload.PATH.
func isExpression(text string) bool { return expression.MatchString(text) }

// DeadLetter is the topic for messages that can't be handled, where {topic} and {group} stand for the message's own; or drop
// (acked and gone), or block (tried for ever, in place).
type DeadLetter string

// The dead letters.
const (
	DefaultDeadLetter DeadLetter = "{topic}--{group}--dead"
	DeadLetterDrop    DeadLetter = "drop"
	DeadLetterBlock   DeadLetter = "block"
)

// Topic returns the topic for a message of topic and group, or "" where there is none (drop, block).
func (l DeadLetter) Topic(topic, group string) string {
	if l == DeadLetterDrop || l == DeadLetterBlock {
		return ""
	}
	return strings.NewReplacer("{topic}", topic, "{group}", group).Replace(string(l))
}
