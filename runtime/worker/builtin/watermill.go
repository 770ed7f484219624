package builtin

import (
	"strings"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/watermill"
	"github.com/leat-io/leat/runtime/worker"
)

func openWatermillKafka(_ worker.Env, c config.Component) (transport.Transport, error) {
	var o watermill.KafkaOptions
	if err := c.Decode(&o); err != nil {
		return nil, err
	}
	if _, hosts, ok := strings.Cut(c.URL.Reveal(), "://"); ok && hosts != "" {
		o.Brokers = strings.Split(hosts, ",")
	}
	return watermill.Kafka(o)
}

func openWatermillAMQP(_ worker.Env, c config.Component) (transport.Transport, error) {
	var o watermill.AMQPOptions
	if err := c.Decode(&o); err != nil {
		return nil, err
	}
	if rest, ok := strings.CutPrefix(c.URL.Reveal(), "watermill-"); ok {
		o.URL = rest
	}
	return watermill.AMQP(o)
}
