package worker

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// sameSignal is how soon after the first a signal is not another one: some
// senders, timeout(1) among them, signal a process and then its whole group.
const sameSignal = 50 * time.Millisecond

// Main is the whole main function of a worker. It reads the command line,
// runs the command and ends the process:
//
//	 0  done
//	 1  failed, or attempts still ran at the end of drain_timeout
//	 2  forced by a second signal
//	64  wrong command line
//	78  wrong configuration: starting again will not help
//
// The first SIGTERM or SIGINT has a running worker drain, a later one ends it
// at once. A reader of its output that goes away does not kill it.
func Main(opts ...Option) {
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		signal.Notify(signals, syscall.SIGHUP)
	}
	go func() {
		<-signals
		stop()
		for first := time.Now(); time.Since(first) < sameSignal; {
			<-signals
		}
		os.Exit(exitForced)
	}()
	os.Exit(execute(ctx, os.Args, process{in: os.Stdin, out: os.Stdout, err: os.Stderr, opts: opts}))
}
