package builtin

import (
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/handlers"
	"github.com/leat-io/leat/runtime/worker"
)

func buildLog(env worker.Env, c config.Component) (message.HandlerFunc, error) {
	var o handlers.LogOptions
	err := c.Decode(&o)
	return handlers.Log(o, env.Log), err
}

func buildDiscard(_ worker.Env, c config.Component) (message.HandlerFunc, error) {
	return handlers.Discard(), c.Decode(&struct{}{})
}

func buildForward(_ worker.Env, c config.Component) (message.HandlerFunc, error) {
	var o handlers.ForwardOptions
	err := c.Decode(&o)
	return handlers.Forward(o), err
}
