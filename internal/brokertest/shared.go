// Package brokertest gives tests real brokers, shared ones or their own, and
// links to them that fail on demand.
package brokertest

import (
	"os"
	"testing"
)

// variables has, by the names of scripts/brokers, where the URLs of brokers
// are looked up.
var variables = map[string]string{
	"kafka":        "LEAT_TEST_KAFKA",
	"kafka3":       "LEAT_TEST_KAFKA3",
	"kafka-secure": "LEAT_TEST_KAFKA_SECURE",
	"rabbitmq":     "LEAT_TEST_AMQP",
	"rabbitmq3":    "LEAT_TEST_AMQP3",
	"postgres":     "LEAT_TEST_POSTGRES",
	"mariadb":      "LEAT_TEST_MYSQL",
	"redis":        "LEAT_TEST_REDIS",
}

// URL is where the shared broker of a name listens: kafka, kafka3,
// kafka-secure, rabbitmq, rabbitmq3, postgres, mariadb or redis. Other tests use
// it at the same time, so names in it must be the test's own. Where none is
// configured the test is skipped; where CI is set, it fails.
func URL(tb testing.TB, name string) string {
	tb.Helper()
	variable, known := variables[name]
	if !known {
		tb.Fatalf("no broker is called %s", name)
	}
	url := os.Getenv(variable)
	if url == "" {
		missing(tb, `no %s: run scripts/brokers up %s, then eval "$(scripts/brokers env)", or set it to the URL of a broker of your own`, variable, name)
	}
	return url
}

// missing ends a test that lacks a broker.
func missing(tb testing.TB, format string, args ...any) {
	tb.Helper()
	if os.Getenv("CI") != "" {
		tb.Fatalf(format, args...)
	}
	tb.Skipf(format, args...)
}
