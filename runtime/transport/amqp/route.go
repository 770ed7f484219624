package amqp

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/leat-io/leat/runtime/transport"
)

// maxShort is the longest name, and routing key, of the protocol.
const maxShort = 255

// route is where a topic is found.
type route struct {
	topic    string
	exchange string   // empty: the default one, which takes a queue's name as routing key
	kind     string   // empty: the exchange is not ours to declare
	key      string   // of what is published
	bindings []string // routing keys
	queue    string   // of all groups; empty: each has one of its own
}

func (t *Transport) route(topic string) route {
	o := t.o.Topics[topic]
	r := route{topic: topic, exchange: topic, kind: "fanout", key: o.RoutingKey, bindings: o.Bindings, queue: o.Queue}
	switch {
	case o.Exchange != "":
		r.exchange, r.kind = o.Exchange, o.Type
	case o.Type != "":
		r.kind = o.Type
	case o.Queue != "":
		r.exchange, r.kind, r.key = "", "", o.Queue
	}
	if len(r.bindings) == 0 {
		r.bindings = []string{r.key}
	}
	return r
}

// maxQueue leaves room in the name of a queue for what is derived from it.
const maxQueue = 230

// queueName is {topic}--{group}. The form is part of the format.
func queueName(topic, group string) string { return bounded(topic+"--"+group, maxQueue) }

// bounded cuts a name that is too long, and has a hash tell it from others.
func bounded(name string, most int) string {
	if len(name) <= most {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	hash := hex.EncodeToString(sum[:16])
	return name[:most-len(hash)-2] + "--" + hash
}

// checkNames refuses names that are not legal on every broker, and those that
// would make one queue of two pairs.
func checkNames(topic, group string) error {
	if err := transport.CheckName("topic", topic); err != nil {
		return transport.Refuse(err)
	}
	if group == "" {
		return nil
	}
	if err := transport.CheckName("group", group); err != nil {
		return transport.Refuse(err)
	}
	if strings.Contains("-"+group+"-", "--") {
		return transport.Refuse(fmt.Errorf(`group name %q contains "--" or has "-" at an end, so the queue %q would be ambiguous: rename it`, group, queueName(topic, group)))
	}
	return nil
}
