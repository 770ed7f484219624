package dir

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/leat-io/leat/runtime/conformance"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/transporttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	t.Parallel()
	report := transporttest.Run(t, transporttest.Options{
		Open: func(tb transporttest.TB) transporttest.Broker {
			o := Options{Path: tb.TempDir(), Poll: 20 * time.Millisecond}
			return transporttest.Broker{
				Transport: func(transporttest.TB) transport.Transport { return New(o) },
				Kill:      kill,
				Foreign:   strangers(o),
			}
		},
		Takeover: time.Second,
		Patience: 2 * time.Minute, // of a busy disk
		Lacks: map[string]string{
			"PublishLater": "a directory knows no transactions",
			"Oversize":     "a file may have any size",
			"*":            "a directory does not run, and is not far away",
		},
	})
	for name, why := range report.Skipped() {
		require.Regexp(t, "^no [A-Z]", why, name)
	}
}

// kill does to a consumer what the kernel does at the end of its process: all
// files are closed, and nobody is told.
func kill(_ transporttest.TB, tc transport.Consumer, _ transport.ConsumerConfig) {
	c := tc.(*consumer)
	c.once.Do(func() { close(c.stop) })
	<-c.kept
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, sp := range c.spells {
		sp.over = true
		_ = sp.lock.Close()
	}
	c.spells = nil
	for _, s := range c.seats {
		_ = s.lock.Close()
	}
}

// strangers writes what is no message of ours, as a script does that keeps to
// the lock and the end.
func strangers(o Options) func(transporttest.TB, string, string) int {
	return func(tb transporttest.TB, topic, _ string) int {
		tp, err := New(o).topic(topic)
		require.NoError(tb, err)
		files := []string{
			"", "\n", "x", `{"id":1}`, "\x00\xff",
			"leat-dir 1", "leat-dir 1 \"cut off", "leat-dir 2 \"new\" 0 false\n\n", "leat-dir 1 \"id\" 0 false\nno header\n\n",
			"leat-dir 1 \"\" 0 false\n\nby hand",
		}
		for i, file := range files {
			err := tp.add(context.Background(), i%tp.partitions, []int{0}, func(int) []byte { return []byte(file) })
			require.NoError(tb, err)
		}
		return len(files)
	}
}

// TestConformance_engine has the engine, and workers that are stopped and
// killed, on directories.
func TestConformance_engine(t *testing.T) {
	t.Parallel()
	report := conformance.Run(t, conformance.Options{
		Open: func(tb conformance.TB) conformance.Broker {
			o := Options{Path: tb.TempDir(), Poll: 20 * time.Millisecond}
			return conformance.Broker{
				Transport: func(conformance.TB) transport.Transport { return New(o) },
				Config:    fmt.Sprintf("{dir: {path: %q, poll: 20ms}}", o.Path),
			}
		},
		Worker:   "./testworker",
		Takeover: time.Second,
		Patience: 2 * time.Minute,
		Short:    true, // the engine's long cases are for the brokers it comes with
		Lacks:    map[string]string{"*": "a directory does not run, and is not far away"},
	})
	for name, why := range report.Skipped() {
		require.Regexp(t, "^no [A-Z]", why, name)
	}
}
