package worker

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// Main is the whole main function of a worker. It reads the command line,
// runs the command and ends the process:
//
//	 0  done
//	 1  failed, or attempts still ran at the end of drain_timeout
//	 2  forced by a second signal
//	64  wrong command line
//	78  wrong configuration: starting again will not help
//
// The first SIGTERM or SIGINT has a running worker drain, the second ends it
// at once. A reader of its output that goes away does not kill it.
func Main(opts ...Option) {
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		stop()
		<-signals
		os.Exit(exitForced)
	}()
	os.Exit(execute(ctx, os.Args, process{in: os.Stdin, out: os.Stdout, err: os.Stderr, opts: opts}))
}
