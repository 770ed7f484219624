// Package probe is the worker that package conformance starts, stops and
// kills: a whole worker with one handler of its own, which records a history
// of its runs. The author of a transport builds it with the transport in it:
//
//	// Command worker is tried by package conformance.
//	package main
//
//	func main() { probe.Main(worker.Parts(worker.Table{Transports: []worker.TransportKind{mine}})) }
package probe

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/runtime/transport/history"
	"github.com/leat-io/leat/runtime/worker"
)

// Main is the main function of a worker with the parts given, and the handler
// "probe".
func Main(parts ...worker.Option) {
	if os.Getenv(Tied) != "" {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(1) //nolint:forbidigo // nobody is left to stop it
		}()
	}
	worker.Main(append(parts, worker.Parts(worker.Table{Handlers: []worker.HandlerKind{
		{Name: "probe", Doc: "records when a run starts and when it ends", Options: &Options{}, Build: build},
	}}))...)
}

// Tied is set in the environment of a worker that ends when its standard input
// does, so that none is left behind by a suite that was killed.
const Tied = "LEAT_PROBE_TIED"

// Proc is, in the environment, the name of the process in its history.
const Proc = "LEAT_PROBE_PROC"

// Options of the handler.
type Options struct {
	// Dir is a folder in which each process records the history of its runs. Required.
	Dir string `yaml:"dir" required:"true"`
	// Work is how long a run takes.
	Work time.Duration `yaml:"work"`
	// Then is what comes after that. Default: done.
	Then Then `yaml:"then" enum:"done,fail,hang"`
	// Stuck is the id of a message whose runs never return, whatever Then says. Default: none.
	Stuck string `yaml:"stuck"`
}

// Then is the end of a run.
type Then string

// Values of Then.
const (
	Done Then = "done"
	Fail Then = "fail"
	Hang Then = "hang" // never returns, whatever the context says
)

func build(_ worker.Env, c config.Component) (message.HandlerFunc, error) {
	o := Options{Then: Done}
	if err := c.Decode(&o); err != nil {
		return nil, err
	}
	recorded := sync.OnceValues(func() (message.HandlerFunc, error) {
		l, err := history.OpenLog(o.Dir, os.Getenv(Proc))
		if err != nil {
			return nil, err
		}
		return history.Handler(o.handle, l), nil
	})
	return func(m *message.Message) ([]*message.Message, error) {
		h, err := recorded()
		if err != nil {
			return nil, err
		}
		return h(m)
	}, nil
}

func (o Options) handle(m *message.Message) ([]*message.Message, error) {
	timer := time.NewTimer(o.Work)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-m.Context().Done():
		return nil, context.Cause(m.Context())
	}
	then := o.Then
	if o.Stuck != "" && m.UUID == o.Stuck {
		then = Hang
	}
	switch then {
	case Hang:
		select {}
	case Fail:
		return nil, errors.New("as asked")
	case Done:
	}
	return nil, nil
}
