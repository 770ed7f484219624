// Package probe is the worker that package conformance starts, stops and
// kills: a whole worker with one handler of its own, which leaves traces in a
// file. The author of a transport builds it with the transport in it:
//
//	// Command worker is tried by package conformance.
//	package main
//
//	func main() { probe.Main(worker.Parts(worker.Table{Transports: []worker.TransportKind{mine}})) }
package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/runtime/transport"
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
		{Name: "probe", Doc: "writes to a file when it starts and when it ends", Options: &Options{}, Build: build},
	}}))...)
}

// Tied is set in the environment of a worker that ends when its standard input
// does, so that none is left behind by a suite that was killed.
const Tied = "LEAT_PROBE_TIED"

// Options of the handler.
type Options struct {
	// File gets a [Trace] when a run starts and when it ends. Required.
	File string `yaml:"file" required:"true"`
	// Work is how long a run takes.
	Work time.Duration `yaml:"work"`
	// Then is what comes after that. Default: done.
	Then Then `yaml:"then" enum:"done,fail,hang"`
}

// Then is the end of a run.
type Then string

// Values of Then.
const (
	Done Then = "done"
	Fail Then = "fail"
	Hang Then = "hang" // never returns, whatever the context says
)

// Trace is one line of the file. Lines of several processes do not mix, and
// what was written outlives a process that is killed.
type Trace struct {
	Event   string // start, done or fail
	PID     int
	ID      string // of the message, without spaces
	Attempt int
}

// String is the line, without its end.
func (t Trace) String() string { return fmt.Sprintf("%s %d %s %d", t.Event, t.PID, t.ID, t.Attempt) }

// Parse reads whole lines.
func Parse(lines string) ([]Trace, error) {
	var out []Trace
	for line := range strings.Lines(lines) {
		var t Trace
		if _, err := fmt.Sscanf(line, "%s %d %s %d\n", &t.Event, &t.PID, &t.ID, &t.Attempt); err != nil {
			return nil, fmt.Errorf("trace %q: %w", line, err)
		}
		out = append(out, t)
	}
	return out, nil
}

func build(_ worker.Env, c config.Component) (message.HandlerFunc, error) {
	o := Options{Then: Done}
	if err := c.Decode(&o); err != nil {
		return nil, err
	}
	return o.handle, nil
}

func (o Options) handle(m *message.Message) ([]*message.Message, error) {
	if err := o.trace(m, "start"); err != nil {
		return nil, err
	}
	timer := time.NewTimer(o.Work)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-m.Context().Done():
		return nil, context.Cause(m.Context())
	}
	switch o.Then {
	case Hang:
		select {}
	case Fail:
		return nil, errors.Join(errors.New("as asked"), o.trace(m, "fail"))
	case Done:
	}
	return nil, o.trace(m, "done")
}

// trace writes a line in one write.
func (o Options) trace(m *message.Message, event string) error {
	f, err := os.OpenFile(o.File, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	t := Trace{Event: event, PID: os.Getpid(), ID: m.UUID}
	if a := transport.AttemptFrom(m.Context()); a != nil {
		t.Attempt = a.Number()
	}
	_, err = fmt.Fprintln(f, t)
	return errors.Join(err, f.Close())
}
