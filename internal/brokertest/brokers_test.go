package brokertest_test

import (
	"fmt"
	goruntime "runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/internal/brokertest"
)

// ending is a test that notes how it ends.
type ending struct {
	testing.TB

	skipped, failed string
}

func (e *ending) Helper() {}

func (e *ending) Skipf(format string, args ...any) {
	e.skipped = fmt.Sprintf(format, args...)
	goruntime.Goexit()
}

func (e *ending) Fatalf(format string, args ...any) {
	e.failed = fmt.Sprintf(format, args...)
	goruntime.Goexit()
}

func outcome(t *testing.T, test func(testing.TB)) *ending {
	t.Helper()
	e := &ending{TB: t}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		test(e)
	}()
	<-ended
	return e
}

func TestURL(t *testing.T) {
	url := func(name string) *ending {
		return outcome(t, func(tb testing.TB) { tb.Helper(); brokertest.URL(tb, name) })
	}
	own := func() *ending {
		return outcome(t, func(tb testing.TB) { tb.Helper(); brokertest.Start(tb, "postgres", "redis") })
	}

	t.Setenv("LEAT_TEST_AMQP", "amqp://there")
	require.Equal(t, "amqp://there", brokertest.URL(t, "rabbitmq"))

	t.Setenv("LEAT_TEST_AMQP", "")
	t.Setenv("LEAT_TEST_OWN", "")
	t.Setenv("CI", "")
	require.Contains(t, url("rabbitmq").skipped, "no LEAT_TEST_AMQP")
	require.Contains(t, own().skipped, "postgres, redis")

	t.Setenv("CI", "true")
	require.Contains(t, url("rabbitmq").failed, "no LEAT_TEST_AMQP")
	require.Contains(t, own().failed, "LEAT_TEST_OWN=1")

	require.Contains(t, url("rabbit").failed, "rabbit")
}

func TestOwnBrokers(t *testing.T) {
	t.Parallel()
	b := brokertest.Start(t, "postgres")
	require.Contains(t, b.URL("postgres"), "postgres://postgres@127.0.0.1:")
	ask := func(sql string) string { return b.Exec("postgres", "psql", "-qAtX", "-d", "leat", "-c", sql) }
	ask("CREATE TABLE kept AS SELECT 42 AS n")
	b.Kill("postgres")
	b.Up("postgres")
	require.Equal(t, "42\n", ask("SELECT n FROM kept"), "data outlive a kill")
	b.Stop("postgres")
	b.Up("postgres")
	b.Restart("postgres")
	b.Pause("postgres")
	b.Resume("postgres")
	require.Equal(t, "42\n", ask("SELECT n FROM kept"))
}
