package builtin

import (
	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/kafka"
	"github.com/leat-io/leat/runtime/worker"
)

// openKafka reads kafka://HOST:PORT,…, or {kafka: {brokers: […], …}}. Files
// that are named start from the folder of the YAML file.
func openKafka(env worker.Env, c config.Component) (transport.Transport, error) {
	var o kafka.Options
	var err error
	if c.URL.IsZero() {
		err = c.Decode(&o)
	} else {
		o, err = kafka.ParseURL(c.URL.Reveal())
	}
	if err != nil {
		return nil, err
	}
	return kafka.New(o.In(c.Dir), env.Log)
}
