package shelf

import (
	"context"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/transporttest"
)

// What the page does not show.

func New(Options) transport.Transport { return nil }

func fresh(transporttest.TB) Options { return Options{} }

func (c *consumer) die() {}

func (c *consumer) Pause(*transport.Assignment)  {}
func (c *consumer) Resume(*transport.Assignment) {}

func (c *consumer) Close(context.Context) error { return nil }
