package pubsub_test

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// Of Watermill's own Kafka and AMQP: one goroutine for the process, and one
	// that a connection may leave behind.
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"),
		goleak.IgnoreTopFunction("github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp.(*ConnectionWrapper).handleConnectionClose"))
}
