package worker

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/leat-io/leat/handlers"
	"github.com/leat-io/leat/runtime/transport"
)

type demoCommand struct {
	Count    *int    `placeholder:"N" help:"Stop after so many orders. Default: at Ctrl-C."`
	Seed     *uint64 `placeholder:"S" help:"What happens to each order follows from it. Default: a random one."`
	LogLevel string  `enum:"off,debug,info,warn,error" default:"off" help:"Show the worker's log on standard error: debug, info, warn or error."`
}

//go:embed demo.yaml
var demoYAML []byte

// Run publishes orders to a database in a temporary folder and has them
// charged by a worker made as any program makes one.
func (c *demoCommand) Run(ctx context.Context, p *process) (err error) {
	if c.Count != nil && *c.Count < 1 {
		return usageError("--count has to be at least 1")
	}
	table, err := gather(p.opts)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "leat-demo-")
	if err != nil {
		return fmt.Errorf("temporary folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file := filepath.Join(dir, "worker.yaml")
	if err := os.WriteFile(file, demoYAML, 0o600); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}

	d := &demo{seed: rand.Uint64(), failed: map[string]bool{}, first: make(chan struct{})} //nolint:gosec // makes up orders
	if c.Count != nil {
		d.count = *c.Count
	}
	if c.Seed != nil {
		d.seed = *c.Seed
	}
	opts := []Option{
		Parts(Table{Transports: table.table.Transports, Stores: table.table.Stores}), File(file),
		Handle("charge", handlers.JSON(d.charge)), Handle("receipt", handlers.JSON(d.receipt)),
	}
	if c.LogLevel != "off" {
		opts = append(opts, Log((&logFlags{LogFormat: "auto", LogLevel: c.LogLevel}).logger(p.err)))
	}
	if d.worker, err = New(opts...); err != nil { //nolint:contextcheck // New starts nothing
		return err
	}
	return d.run(ctx, &demoView{out: p.out, live: isTerminal(p.out)})
}

// run starts the worker, publishes until ctx ends or there are enough, and
// waits until all that was published is finished.
func (d *demo) run(ctx context.Context, v *demoView) error {
	d.began = time.Now()
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var worked error
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		worked = d.worker.Run(working)
	}()
	select {
	case <-d.worker.Router().Ready():
	case <-stopped:
		return worked
	case <-ctx.Done():
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	watching, stopWatching := context.WithCancel(working)
	defer stopWatching()
	watched := make(chan error, 1)
	go func() {
		err := v.watch(watching, d)
		if err != nil {
			end() // nobody looks on any more
		}
		watched <- err
	}()

	published := d.publish(ctx)
	finished := d.finish(ctx, stopped)
	stopWatching()
	stop()
	<-stopped
	return errors.Join(published, finished, worked, <-watched, v.last(d.progress(), time.Since(d.began)))
}

// finish waits until every order is handled or dead and every receipt has
// come, or until the worker has stopped. Once ctx has ended it waits no longer
// than a drain may take.
func (d *demo) finish(ctx context.Context, stopped <-chan struct{}) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var limit <-chan time.Time
	asked := ctx.Done()
	for {
		s := d.progress()
		if s.handled+s.dead+s.duplicates >= s.published && s.receipts >= s.handled {
			return nil
		}
		select {
		case <-tick.C:
		case <-asked:
			asked, limit = nil, time.After(d.worker.cfg.DrainTimeout.Std())
		case <-stopped:
			return errors.New("demo: the worker stopped before all orders were finished")
		case <-limit:
			return fmt.Errorf("demo: %d orders were not finished in time", s.published-s.handled-s.dead-s.duplicates)
		}
	}
}

// progress is what has come of the orders so far.
type progress struct {
	published, handled, retried, duplicates, dead int64
	receipts, parked                              int64
}

func (d *demo) progress() progress {
	p := progress{published: d.published.Load(), retried: d.retried.Load()}
	for _, s := range d.worker.Router().Status() {
		switch s.Consumer {
		case "charge":
			p.handled, p.duplicates, p.dead = s.Count(transport.Handled), s.Count(transport.Duplicate), s.Count(transport.Dead)
			p.parked = int64(s.Parked)
		case "receipt":
			p.receipts = s.Count(transport.Handled)
		}
	}
	return p
}
