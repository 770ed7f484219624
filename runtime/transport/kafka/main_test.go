package kafka_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"), // of Sarama
		goleak.Cleanup(func(code int) {
			if binaryDir != "" {
				_ = os.RemoveAll(binaryDir) // the system's folder for what may be left behind
			}
			os.Exit(code)
		}),
	)
}
