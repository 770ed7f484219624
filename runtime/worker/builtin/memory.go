package builtin

import (
	"context"
	"strings"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
	"github.com/leat-io/leat/runtime/worker"
)

func openMemory(_ worker.Env, c config.Component) (transport.Transport, error) {
	var o memory.Options
	if err := c.Decode(&o); err != nil {
		return nil, err
	}
	_, name, _ := strings.Cut(c.URL.Reveal(), "://")
	return memory.New(name, o), nil
}

type memoryStoreOptions struct {
	// MaxKeys is how many keys are remembered; 0 means 100000.
	MaxKeys int `yaml:"max_keys" min:"0"`
}

func memoryStore(_ worker.Env, c config.Component) (worker.OpenStore, error) {
	var o memoryStoreOptions
	if err := c.Decode(&o); err != nil {
		return nil, err
	}
	return func(context.Context) (middleware.DedupStore, func() error, error) {
		return middleware.NewMemoryDedup(o.MaxKeys), func() error { return nil }, nil
	}, nil
}
