package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"syscall"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"github.com/leat-io/leat/config"
)

// Exit codes; sysexits.h has the last two.
const (
	exitDone   = 0
	exitFailed = 1
	exitForced = 2
	exitUsage  = 64
	exitConfig = 78
)

// commands is the command line. Each command stands in a file of its own and
// has a method Run(context.Context, *process) error.
type commands struct {
	Run         runCommand         `cmd:"" help:"Consume until stopped."`
	Demo        demoCommand        `cmd:"" help:"Show a worker at work: no file, no broker, nothing left behind."`
	Lint        lintCommand        `cmd:"" help:"Check configurations without connecting to anything."`
	Publish     publishCommand     `cmd:"" help:"Publish messages to a topic."`
	List        listCommand        `cmd:"" help:"List what this program knows and what a file configures."`
	Migrate     migrateCommand     `cmd:"" help:"Bring the schema of the file's databases up to date."`
	Groups      groupsCommand      `cmd:"" help:"List or drop the groups of a broker."`
	Init        initCommand        `cmd:"" help:"Write a project: a file, a program and its test."`
	Schema      schemaCommand      `cmd:"" help:"Print the JSON Schema of the file, for editors."`
	Healthcheck healthcheckCommand `cmd:"" help:"Ask the worker of this configuration whether it is alive: exit code 0 or 1."`
	Version     versionCommand     `cmd:"" help:"Print the version."`
	Completion  completionCommand  `cmd:"" help:"Print a script that completes command lines, for bash, zsh or fish."`
	Complete    completeCommand    `cmd:"" hidden:""`
}

// process is what commands have of the process.
type process struct {
	name     string
	in       io.Reader
	out, err io.Writer
	opts     []Option
}

// fileFlags say which configuration a command works on.
type fileFlags struct {
	Config []string `short:"c" sep:"none" placeholder:"FILE" help:"Configuration; later files overlay earlier ones. Default: worker.yaml."`
	Set    []string `sep:"none" placeholder:"PATH=VALUE" help:"Overlay one value, such as consumers.charge.concurrency=4."`
}

func (f *fileFlags) option() Option {
	return func(o *options) {
		if len(f.Config) > 0 {
			o.config.Files, o.config.Data = f.Config, nil
		}
		o.config.Set = append(o.config.Set, f.Set...)
	}
}

// with is the program's own options below those of flags.
func (p *process) with(flags ...Option) []Option {
	return append(append([]Option(nil), p.opts...), flags...)
}

// usageError is a command line that parses and cannot be meant.
type usageError string

func (e usageError) Error() string { return string(e) }

// quietError ends the process with a code after everything has been said.
type quietError int

func (e quietError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// execute runs one command line and returns the exit code. ctx ends with the
// first signal.
func execute(ctx context.Context, args []string, p process) int {
	p.name = filepath.Base(args[0])
	err := p.parseAndRun(ctx, args[1:])
	var usage usageError
	var quiet quietError
	var parse *kong.ParseError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &quiet):
		return int(quiet)
	case errors.Is(err, syscall.EPIPE):
		return exitFailed // whoever has closed our output knows
	case errors.As(err, &usage), errors.As(err, &parse):
		_, _ = fmt.Fprintf(p.err, "%s: %v; see %s --help\n", p.name, err, p.name)
		return exitUsage
	}
	if wrong, ok := errors.AsType[*config.Error](err); ok {
		_, _ = fmt.Fprintln(p.err, wrong)
		return exitConfig
	}
	_, _ = fmt.Fprintf(p.err, "%s: %s\n", p.name, config.MaskURL(err.Error()))
	return exitFailed
}

func (p *process) parseAndRun(ctx context.Context, args []string) (err error) {
	type helped struct{}
	defer func() {
		switch v := recover(); v.(type) {
		case nil:
		case helped:
			err = nil
		default:
			panic(v)
		}
	}()
	k, err := kong.New(&commands{},
		kong.Name(p.name), kong.Description("Consume messages with Go handlers: the broker is one line of YAML."),
		kong.Writers(p.out, p.err), kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true}),
		kong.Exit(func(int) { panic(helped{}) }), // kong would go on after printing help
		kong.BindTo(ctx, (*context.Context)(nil)), kong.Bind(p))
	if err != nil {
		return fmt.Errorf("command line: %w", err)
	}
	for i, arg := range args {
		if !utf8.ValidString(arg) { // kong would replace the bytes, in payloads too
			return usageError(fmt.Sprintf("argument %d is not UTF-8; publish other bytes by --file", i+1))
		}
	}
	line, err := k.Parse(args)
	if err != nil {
		return err
	}
	return line.Run()
}
