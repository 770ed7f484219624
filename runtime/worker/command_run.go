package worker

import (
	"context"
	"errors"
	"time"
)

type runCommand struct {
	fileFlags
	logFlags

	Instance  string        `env:"LEAT_INSTANCE" placeholder:"NAME" help:"Name of this process. A set one takes back at once after a restart what it held; no two may share it."`
	UntilIdle time.Duration `placeholder:"DURATION" help:"Stop when nothing was waiting, parked or delayed for so long, and all that is to be read can be."`
}

// Run consumes until ctx ends, or until nothing is left to do.
func (c *runCommand) Run(ctx context.Context, p *process) error {
	if c.UntilIdle < 0 {
		return usageError("--until-idle cannot be negative")
	}
	log := c.logger(p.err)
	flags := []Option{c.option(), listenByDefault}
	if c.Instance != "" {
		flags = append(flags, Instance(c.Instance))
	}
	w, err := New(append([]Option{Log(log)}, p.with(flags...)...)...) //nolint:contextcheck // New starts nothing
	if err != nil {
		return err
	}
	if err := w.listen(ctx); err != nil { // here, so that the banner can say where
		return errors.Join(err, w.Close(ctx))
	}
	began := time.Now()
	say := announcer{log: log}
	if c.text(p.err) {
		say.text = p.err
	}
	say.start(ctx, w)

	unsaid := context.AfterFunc(ctx, func() {
		log.InfoContext(ctx, "draining, a second signal quits at once", "drain_timeout", w.cfg.DrainTimeout)
	})
	defer unsaid()
	running, stop := context.WithCancel(ctx) // of its own name: what is above still reads ctx
	defer stop()
	if c.UntilIdle > 0 {
		go func() {
			if w.Router().WaitIdle(running, c.UntilIdle) == nil {
				log.InfoContext(running, "nothing left to do", "idle_for", c.UntilIdle)
				stop()
			}
		}()
	}
	err = w.Run(running)
	say.end(ctx, w, time.Since(began))
	return err
}
