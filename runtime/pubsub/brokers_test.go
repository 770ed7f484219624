package pubsub_test

import (
	"context"
	stdsql "database/sql"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/amqp"
	"github.com/leat-io/leat/runtime/transport/kafka"
	"github.com/leat-io/leat/runtime/transport/sql"
)

const (
	shared    = "the broker is shared; TestReconnect has one of its own"
	noHistory = "a queue has what is published after it was made"
)

// faces are those of a broker, by what is done about order.
type faces struct {
	parallel, ordered face
	connect           func(url string, partitions int) (transport.Transport, error)
	fresh             func(t *testing.T, url string) string // a place of the test's own
}

func all() map[string]faces {
	queues := parallel()
	queues.features.NewSubscriberReceivesOldMessages = false
	queues.lacks["TestNewSubscriberReceivesOldMessages"] = noHistory
	queue := ordered()
	queue.features.NewSubscriberReceivesOldMessages = false
	queue.features.GuaranteedOrderWithSingleSubscriber = true
	queue.lacks["TestNewSubscriberReceivesOldMessages"] = noHistory
	return map[string]faces{
		"kafka": {parallel(), ordered(), func(url string, partitions int) (transport.Transport, error) {
			o, err := kafka.ParseURL(url)
			if err != nil {
				return nil, err
			}
			o.Partitions = partitions
			return kafka.New(o, nil)
		}, nil},
		"rabbitmq": {queues, queue, func(url string, _ int) (transport.Transport, error) {
			return amqp.Open(amqp.Options{URL: config.NewSecret(url)})
		}, nil},
		"postgres": {parallel(), ordered(), func(url string, partitions int) (transport.Transport, error) {
			return sql.OpenPostgres(sql.ServerOptions{Server: sql.Server{URL: url}, Partitions: partitions, Poll: 20 * time.Millisecond})
		}, freshPostgres},
		"mariadb": {parallel(), ordered(), func(url string, partitions int) (transport.Transport, error) {
			return sql.OpenMySQL(sql.ServerOptions{Server: sql.Server{URL: url}, Partitions: partitions, Poll: 20 * time.Millisecond})
		}, freshMySQL},
	}
}

// TestConformance_brokers is Watermill's suite on real brokers.
func TestConformance_brokers(t *testing.T) {
	t.Parallel()
	for name, fs := range all() {
		for kind, of := range map[string]struct {
			face       face
			partitions int
		}{"parallel": {fs.parallel, 8}, "ordered": {fs.ordered, 1}} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				url := brokertest.URL(t, name)
				if fs.fresh != nil {
					url = fs.fresh(t, url)
				}
				of.face.lacks["TestReconnect"] = shared
				of.face.on(func(t *testing.T) transport.Transport {
					t.Helper()
					tr, err := fs.connect(url, of.partitions)
					require.NoError(t, err)
					return tr
				}).exercise(t)
			})
		}
	}
}

// TestReconnect is Watermill's test of that name: the broker is restarted while
// 10,000 messages are on their way. It races with itself, takes a message whose
// publish failed for one that may not come, and gives all of them a minute.
func TestReconnect(t *testing.T) {
	t.Parallel()
	if os.Getenv("LEAT_SOAK") == "" {
		t.Skip("it has a data race of its own, and takes long: LEAT_SOAK=1 has it, in make soak without -race")
	}
	for name, fs := range all() { //nolint:paralleltest // each starts a broker
		t.Run(name, func(t *testing.T) {
			own := brokertest.Start(t, name)
			f := fs.parallel
			f.features.RestartServiceCommand = own.Command("restart", name)
			f.on(func(t *testing.T) transport.Transport {
				t.Helper()
				tr, err := fs.connect(own.URL(name), 8)
				require.NoError(t, err)
				return tr
			}).only(t, "TestReconnect")
		})
	}
}

// freshPostgres makes a database, which goes with the test.
func freshPostgres(t *testing.T, at string) string {
	t.Helper()
	return freshDatabase(t, "pgx", at, at)
}

// freshMySQL does the same.
func freshMySQL(t *testing.T, at string) string {
	t.Helper()
	u, err := url.Parse(at)
	require.NoError(t, err)
	return freshDatabase(t, "mysql", u.User.String()+"@tcp("+u.Host+")"+u.Path, at)
}

func freshDatabase(t *testing.T, driver, address, at string) string {
	t.Helper()
	db, err := stdsql.Open(driver, address)
	require.NoError(t, err)
	name := fmt.Sprintf("leat_pubsub_%08x", rand.Uint32())
	_, err = db.ExecContext(t.Context(), "CREATE DATABASE "+name)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := db.ExecContext(context.Background(), "DROP DATABASE "+name)
		require.NoError(t, err)
		require.NoError(t, db.Close())
	})
	u, err := url.Parse(at)
	require.NoError(t, err)
	u.Path = "/" + name
	return u.String()
}
