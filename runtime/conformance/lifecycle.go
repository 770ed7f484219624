package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/transporttest"
)

// startAndStop: many workers that come and go within one process leave
// neither goroutines nor files behind.
func startAndStop(r *rig) {
	topic, group := r.topic()
	rounds := r.o.scale(10, 20, 200)
	label := r.name("leaks")
	l := newLedger(r)
	before := openFiles()
	for i := range rounds {
		r.publish(topic, msg(fmt.Sprint("m-", i), "k"))
		pprof.Do(context.WithoutCancel(r.Context()), pprof.Labels("conformance", label), func(ctx context.Context) {
			r.comeAndGo(ctx, l, topic, group, i+1)
		})
	}
	l.ranOnce()
	left := func() string { return transporttest.Goroutines(label) }
	r.eventually("all goroutines have ended", func() bool { return left() == "" }, func() any { return left() })
	// Other cases have files open too, until they end: what was opened during the
	// rounds goes, but for less than one a round.
	files := openFiles()
	maps.DeleteFunc(files, func(f string, _ bool) bool { return before[f] })
	r.eventually("all files are closed", func() bool {
		now := openFiles()
		maps.DeleteFunc(files, func(f string, _ bool) bool { return !now[f] })
		return len(files) <= rounds/2
	}, func() any { return fmt.Sprintf("opened during %d rounds: %v", rounds, slices.Sorted(maps.Keys(files))) })
}

// comeAndGo is one worker, with a connection of its own, until n messages are done.
func (r *rig) comeAndGo(ctx context.Context, l *ledger, topic, group string, n int) {
	r.Helper()
	tr := r.broker.Transport(r.TB)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	router := runtime.NewRouter(runtime.Options{Instance: transport.Instance{ID: r.name("instance")}})
	err := router.Consume("c", tr, topic, l.noting(ok), r.policy("c", group)) //nolint:contextcheck // attempts have their own
	ended := make(chan error, 1)
	if err == nil {
		go func() { ended <- router.Run(ctx) }()
		l.awaitDone(n)
		stop()
		err = <-ended
	}
	require.NoError(r, errors.Join(err, tr.Close(context.WithoutCancel(ctx))))
}

// openFiles are those that this process has open, sockets among them; none
// where the system does not say.
func openFiles() map[string]bool {
	const list = "/proc/self/fd"
	open := map[string]bool{}
	files, err := os.ReadDir(list)
	if err != nil {
		return open
	}
	for _, f := range files {
		if what, err := os.Readlink(filepath.Join(list, f.Name())); err == nil {
			open[f.Name()+" "+what] = true
		}
	}
	return open
}

// oneBreaks: one consumer that loses its broker is tried again with growing
// waits; others of the same worker do not notice.
func oneBreaks(r *rig) {
	sick, sickGroup := r.topic()
	well, wellGroup := r.topic()
	l := newLedger(r)
	var o outage
	in := r.instance(o.wrap)
	in.consume("sick", sick, sickGroup, l.noting(ok))
	in.consume("well", well, wellGroup, l.noting(ok))
	in.start()
	r.publish(sick, unkeyed("before", 10)...)
	l.awaitDone(10)
	o.setCut("sick", true)
	in.await("the loss is noticed", func(s runtime.Status) bool { return s.State == runtime.StateReconnecting })
	r.publish(sick, unkeyed("sick", 100)...)
	r.publish(well, unkeyed("well", 100)...)
	l.awaitDone(110)
	in.eventually("it is tried again", func() bool { return len(o.openings("sick")) >= 4 }, func() any { return in.router.Status() })
	require.Equal(r, runtime.StateRunning, in.router.Status()[1].State)
	o.setCut("sick", false)
	l.awaitDone(210)
	in.stopped()
	if r.caps.StableCoordinates { // else what the broker was not told of the first ten may run again
		l.ranOnce()
	}
	at := o.openings("sick")
	for i := 2; i < len(at); i++ { // the first is the start, and the second follows a loss
		require.GreaterOrEqual(r, at[i].Sub(at[i-1]), 50*time.Millisecond, "try %d follows too soon", i)
	}
	require.Len(r, o.openings("well"), 1, "the other consumer was opened again")
	r.nothingLeft(sick, sickGroup)
	r.nothingLeft(well, wellGroup)
}
