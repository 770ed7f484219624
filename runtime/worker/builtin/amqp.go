package builtin

import (
	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/amqp"
	"github.com/leat-io/leat/runtime/worker"
)

// openAMQP reads amqp://… and amqps://…, or {amqp: {url: …}}.
func openAMQP(env worker.Env, c config.Component) (transport.Transport, error) {
	var o amqp.Options
	if err := c.Decode(&o); err != nil {
		return nil, err
	}
	if !c.URL.IsZero() {
		o.URL = c.URL
	}
	o.Dir, o.Name, o.Log = c.Dir, env.Name, env.Log
	o.ReadOnly = env.Topology != transport.TopologyDeclare
	return amqp.Open(o)
}
