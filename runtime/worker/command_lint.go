package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/leat-io/leat/config"
)

type lintCommand struct {
	fileFlags

	Files []string `arg:"" optional:"" name:"file" help:"Configurations, each by itself. Default: what -c names, as one."`
}

// Run builds what each configuration names, as run does, and prints what is wrong.
func (c *lintCommand) Run(ctx context.Context, p *process) error {
	if len(c.Files) > 0 && len(c.Config) > 0 {
		return usageError("name files, or use -c for overlays, not both")
	}
	configs := [][]string{c.Config}
	if len(c.Config) == 0 {
		configs = [][]string{{config.DefaultFile}}
	}
	if len(c.Files) > 0 {
		configs = nil
		for _, f := range c.Files {
			configs = append(configs, []string{f})
		}
	}
	wrong := false
	for _, files := range configs {
		flags := fileFlags{Config: files, Set: c.Set}
		ok, err := lint(ctx, p, flags)
		if err != nil {
			return err
		}
		wrong = wrong || !ok
	}
	if wrong {
		return quietError(exitConfig)
	}
	return nil
}

func lint(ctx context.Context, p *process, flags fileFlags) (ok bool, err error) {
	var out strings.Builder
	w, err := New(p.with(flags.option())...) //nolint:contextcheck // New starts nothing
	wrong, isConfig := errors.AsType[*config.Error](err)
	switch {
	case isConfig:
		fmt.Fprintln(&out, wrong)
	case err != nil:
		return false, err
	default:
		for _, warning := range w.Warnings() {
			fmt.Fprintln(&out, "warning:", warning)
		}
		fmt.Fprintf(&out, "%s: ok\n", strings.Join(flags.Config, ", "))
		if err := w.Close(ctx); err != nil {
			return false, err
		}
	}
	_, err = fmt.Fprint(p.out, out.String())
	return !isConfig, err
}
