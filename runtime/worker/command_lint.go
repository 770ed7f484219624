package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/config"
)

type lintCommand struct {
	fileFlags
	outputFlag

	Known []string `placeholder:"NAME" help:"A handler or middleware that the files name and another program has."`
	Files []string `arg:"" optional:"" name:"file" help:"What to check, each by itself: files, patterns, Markdown with blocks of yaml, and folders with all below them. Default: what -c names, as one."`
}

// Run builds what each configuration names, as run does, and prints what is wrong.
func (c *lintCommand) Run(ctx context.Context, p *process) error {
	if len(c.Files) > 0 && len(c.Config) > 0 {
		return usageError("name files, or use -c for overlays, not both")
	}
	files := c.Config
	if len(files) == 0 {
		files = []string{config.DefaultFile}
	}
	targets := []lintTarget{{name: strings.Join(files, ", "), files: files}}
	if len(c.Files) > 0 {
		var err error
		if targets, err = lintTargets(c.Files); err != nil {
			return err
		}
	}
	known, err := c.known(p)
	if err != nil {
		return err
	}
	var all []finding
	wrong := false
	for _, t := range targets {
		found, err := lint(ctx, p.with(known, t.option(c.Set)))
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		ok := !slices.ContainsFunc(found, func(f finding) bool { return f.Severity == severityError })
		wrong = wrong || !ok
		all = append(all, found...)
		if c.json() {
			continue
		}
		if err := c.print(p, t, found, ok); err != nil {
			return err
		}
	}
	if c.json() {
		if err := printList(p.out, c.outputFlag, all, nil, nil); err != nil {
			return err
		}
	}
	if wrong {
		return quietError(exitConfig)
	}
	return nil
}

// The severities.
const (
	severityError   = "error"
	severityWarning = "warning"
)

// finding is what lint has to say of one place.
type finding struct {
	Severity string `json:"severity"`
	File     string `json:"file"`
	Line     int    `json:"line"`
	Col      int    `json:"col"`
	Path     string `json:"path"`
	Message  string `json:"message"`

	problem config.Problem
}

func findings(severity string, problems []config.Problem) (found []finding) {
	for _, p := range problems {
		found = append(found, finding{severity, p.File, p.Line, p.Col, p.Path, p.Message, p})
	}
	return found
}

// lint makes a worker of one configuration, and no use of it.
func lint(ctx context.Context, opts []Option) ([]finding, error) {
	w, err := New(opts...) //nolint:contextcheck // New starts nothing
	if wrong, ok := errors.AsType[*config.Error](err); ok {
		return findings(severityError, wrong.Problems), nil
	}
	if err != nil {
		return nil, err
	}
	return findings(severityWarning, w.Warnings()), w.Close(ctx)
}

func (c *lintCommand) print(p *process, t lintTarget, found []finding, ok bool) error {
	var out strings.Builder
	var errs []config.Problem
	for _, f := range found {
		if f.Severity == severityWarning {
			fmt.Fprintln(&out, "warning:", f.problem)
			continue
		}
		errs = append(errs, f.problem)
	}
	if len(errs) > 0 {
		fmt.Fprintln(&out, &config.Error{Problems: errs})
	}
	if ok {
		fmt.Fprintf(&out, "%s: ok\n", t.name)
	}
	_, err := fmt.Fprint(p.out, out.String())
	return err
}

// known stands in for parts of other programs.
func (c *lintCommand) known(p *process) (Option, error) {
	o, err := gather(p.opts)
	if err != nil {
		return nil, err
	}
	var t Table
	for _, name := range c.Known {
		if o.table.handler(name) == nil {
			t.Handlers = append(t.Handlers, HandlerKind{Name: name, Build: func(Env, config.Component) (message.HandlerFunc, error) {
				return message.PassthroughHandler, nil
			}})
		}
		if o.table.middleware(name) == nil {
			t.Middleware = append(t.Middleware, MiddlewareKind{Name: name, Build: func(Env, config.Component) (message.HandlerMiddleware, error) {
				return func(h message.HandlerFunc) message.HandlerFunc { return h }, nil
			}})
		}
	}
	return Parts(t), nil
}
