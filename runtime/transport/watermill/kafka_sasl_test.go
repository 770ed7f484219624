package watermill_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/leat-io/leat/config"
	"github.com/leat-io/leat/runtime/transport/watermill"
)

func TestKafkaLogin(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.SeedTopics(1, "orders"),
		kfake.Superuser("PLAIN", "plain", "secret"), kfake.Superuser("SCRAM-SHA-256", "s256", "secret"), kfake.Superuser("SCRAM-SHA-512", "s512", "secret"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	for mechanism, user := range map[string]string{"": "plain", "plain": "plain", "scram-sha-256": "s256", "scram-sha-512": "s512"} {
		for _, password := range []string{"secret", "wrong"} {
			t.Run(mechanism+"/"+password, func(t *testing.T) {
				t.Parallel()
				tr, err := watermill.Kafka(watermill.KafkaOptions{
					Brokers: cluster.ListenAddrs(), Username: user, Password: config.NewSecret(password), SASL: watermill.SASLOptions{Mechanism: mechanism},
				})
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				p, err := tr.OpenProducer(ctx)
				if password == "wrong" {
					require.Error(t, err)
					require.NotContains(t, err.Error(), "wrong")
					return
				}
				require.NoError(t, err)
				require.NoError(t, p.Publish(ctx, "orders", message.NewMessage("m", []byte("x"))))
				require.NoError(t, p.Close(ctx))
			})
		}
	}
}
