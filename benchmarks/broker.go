package main

import (
	"context"
	"crypto/rand"
	"net/url"
	"os"
	"strings"

	"github.com/leat-io/leat/benchmarks/harness"
)

// broker is a real one, which a variable names.
type broker struct {
	name string // as scripts/brokers calls it
	env  string
}

var (
	postgresBroker = broker{"postgres", "LEAT_TEST_POSTGRES"}
	mariadbBroker  = broker{"mariadb", "LEAT_TEST_MYSQL"}
	kafkaBroker    = broker{"kafka", "LEAT_TEST_KAFKA"}
	rabbitBroker   = broker{"rabbitmq", "LEAT_TEST_AMQP"}
)

func (b broker) url() string { return os.Getenv(b.env) }

// address is the host:port of its first node.
func (b broker) address() string {
	u, err := url.Parse(b.url())
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(u.Host, ",")
	return first
}

// missing says why it cannot be measured; empty: it can.
func (b broker) missing() string {
	if b.url() != "" {
		return ""
	}
	return b.env + " is not set: scripts/brokers up " + b.name + ` and eval "$(scripts/brokers env)"`
}

// on has groups measured on a broker, or skipped.
func on(b broker, groups ...harness.Group) []harness.Group {
	for i := range groups {
		groups[i].Broker, groups[i].Skip = b.address(), b.missing()
	}
	return groups
}

// unique is a name that nothing else has.
func unique() string { return "leat_bench_" + strings.ToLower(rand.Text()[:10]) }

// huge tells whether backlogs of a million are asked for: they take minutes to make.
func huge() bool { return os.Getenv("LEAT_BENCH_HUGE") != "" }

// background is for what is made before, and removed after, a measurement.
func background() context.Context { return context.Background() }
