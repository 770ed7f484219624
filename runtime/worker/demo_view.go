package worker

import (
	"context"
	"fmt"
	"io"
	"time"
)

// demoView prints how the demo goes on.
type demoView struct {
	out  io.Writer
	live bool // one line that is written over
}

const (
	liveEvery  = 100 * time.Millisecond
	plainEvery = time.Second
	clearLine  = "\r\x1b[K"
)

// watch prints until ctx ends; its error is one of writing.
func (v *demoView) watch(ctx context.Context, d *demo) error {
	if err := v.line("orders go to an SQLite file in a temporary folder, and handlers charge them; seed %d", d.seed); err != nil {
		return err
	}
	every := plainEvery
	if v.live {
		every = liveEvery
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	first := d.first
	for {
		select {
		case <-first:
			first = nil
			if err := v.line("first order charged after %s", time.Since(d.began).Round(time.Millisecond)); err != nil {
				return err
			}
		case <-tick.C:
			p := d.progress()
			// Short enough for one line of a terminal, or it could not be written over.
			text := fmt.Sprintf("published %d handled %d retried %d duplicates %d dead %d waiting %d",
				p.published, p.handled, p.retried, p.duplicates, p.dead, p.parked)
			if v.live {
				text = clearLine + text
			} else {
				text += "\n"
			}
			if _, err := io.WriteString(v.out, text); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// line prints a line that stays.
func (v *demoView) line(format string, args ...any) error {
	text := fmt.Sprintf(format, args...) + "\n"
	if v.live {
		text = clearLine + text
	}
	_, err := io.WriteString(v.out, text)
	return err
}

// last prints the numbers. Those of one seed and count are always the same.
func (v *demoView) last(p progress, took time.Duration) error {
	return v.line("published=%d handled=%d retried=%d duplicates=%d dead=%d in %s",
		p.published, p.handled, p.retried, p.duplicates, p.dead, took.Round(time.Millisecond))
}
