// Command testworker is a worker whose handlers leave traces outside of it,
// for tests that stop and kill real processes.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/handlers"
	"github.com/leat-io/leat/runtime/worker"
	"github.com/leat-io/leat/runtime/worker/builtin"
)

func main() {
	worker.Main(builtin.All(), worker.Parts(worker.Table{Handlers: []worker.HandlerKind{
		{Name: "trace", Doc: "writes a line when it starts and one when it ends", Build: build},
	}}))
}

// tracing is a handler that writes "start PID ID ATTEMPT" and "done PID ID
// ATTEMPT" to a file, each in one write, so that lines of several processes
// never mix.
type tracing struct {
	File string        `yaml:"file" required:"true"`
	Work time.Duration `yaml:"work"`
	// Then is what happens after the work: done or fail.
	Then string `yaml:"then" enum:"done,fail"`
}

func build(_ worker.Env, c config.Component) (message.HandlerFunc, error) {
	t := tracing{Then: "done"}
	if err := c.Decode(&t); err != nil {
		return nil, err
	}
	return t.handle, nil
}

func (t tracing) handle(msg *message.Message) ([]*message.Message, error) {
	if err := t.write(msg, "start"); err != nil {
		return nil, err
	}
	select {
	case <-time.After(t.Work):
	case <-msg.Context().Done():
		return nil, context.Cause(msg.Context())
	}
	if t.Then == "fail" {
		return nil, errors.New("as asked")
	}
	return nil, t.write(msg, "done")
}

func (t tracing) write(msg *message.Message, what string) error {
	f, err := os.OpenFile(t.File, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	d, _ := handlers.DeliveryFrom(msg.Context())
	_, err = fmt.Fprintf(f, "%s %d %s %d\n", what, os.Getpid(), msg.UUID, d.Attempt)
	return errors.Join(err, f.Close())
}
