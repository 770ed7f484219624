// Package telemetry has the name of every metric, span and attribute of Leat,
// once, and makes them with the OpenTelemetry API. It knows no engine: who
// measures says what.
package telemetry

import "strings"

// Scope is the instrumentation scope of all metrics and spans.
const Scope = "github.com/leat-io/leat"

// The metrics, by their OpenTelemetry names; [Metric.Prometheus] has the others.
const (
	Ready     = "leat.ready"
	BuildInfo = "leat.build.info"

	BrokerConnected = "leat.broker.connected"
	ConsumerState   = "leat.consumer.state"

	Deliveries      = "leat.deliveries"
	Outcomes        = "leat.outcomes"
	AttemptDuration = "leat.attempt.duration"
	DeadLetters     = "leat.dead_letters"
	Outputs         = "leat.outputs"
	Repeats         = "leat.repeats"
	DrainTimeouts   = "leat.drain.timeouts"

	Running        = "leat.running"
	Concurrency    = "leat.concurrency"
	InFlight       = "leat.in_flight"
	Prefetch       = "leat.prefetch"
	InFlightSize   = "leat.in_flight.size"
	PrefetchSize   = "leat.prefetch.size"
	OldestInFlight = "leat.oldest_in_flight"
	Parked         = "leat.parked"
	HeldByOrder    = "leat.held_by_order"

	Backlog       = "leat.backlog"
	BacklogOldest = "leat.backlog.oldest"

	StoreUp       = "leat.store.up"
	StoreFailures = "leat.store.failures"
)

// Attributes of metrics. Their values come from the configuration, or from the
// fixed lists named in [Metrics]; none comes from a message or an error.
const (
	AttrConsumer  = "consumer"
	AttrTopic     = "topic"
	AttrOutcome   = "outcome"
	AttrReason    = "reason"
	AttrStep      = "step"
	AttrState     = "state"
	AttrName      = "name"
	AttrVersion   = "version"
	AttrGoVersion = "go_version"
)

// Kind is what sort of instrument a [Metric] is.
type Kind string

// Values of Kind.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Metric is one instrument.
type Metric struct {
	Name       string
	Kind       Kind
	Unit       string // UCUM; "s" and "By" become part of the Prometheus name
	About      string
	Attributes []string
}

// Prometheus is the name under which the metric is scraped.
func (m Metric) Prometheus() string {
	name := strings.ReplaceAll(m.Name, ".", "_")
	switch m.Unit {
	case "s":
		name += "_seconds"
	case "By":
		name += "_bytes"
	}
	if m.Kind == Counter {
		name += "_total"
	}
	return name
}

// Metrics is all of them, in the order in which the docs list them.
func Metrics() []Metric {
	consumer := []string{AttrConsumer}
	return []Metric{
		{Ready, Gauge, "", "1 from the first complete start until the drain begins.", nil},
		{BuildInfo, Gauge, "", "Always 1; the labels say what runs.", []string{AttrName, AttrVersion, AttrGoVersion}},

		{BrokerConnected, Gauge, "", "1 while the consumer has a session with its broker.", consumer},
		{ConsumerState, Gauge, "", "1 for the state the consumer is in: starting, running, held, blocked, reconnecting, draining, stopped or failed; 0 for the others.", []string{AttrConsumer, AttrState}},

		{Deliveries, Counter, "{delivery}", "Deliveries received.", consumer},
		{Outcomes, Counter, "{attempt}", "Attempts by what they came to: handled, duplicate, waiting, skipped, retried, dead or interrupted.", []string{AttrConsumer, AttrOutcome}},
		{AttemptDuration, Histogram, "s", "How long attempts took, from the outermost link of the chain to the return of the handler. Its series begin with the first attempt.", consumer},
		{DeadLetters, Counter, "{message}", "Messages that have failed for good, dropped ones included: attempts used up, permanent error, undecodable, id reused, output refused or other.", []string{AttrConsumer, AttrReason}},
		{Outputs, Counter, "{message}", "Messages of handlers that a broker has confirmed.", consumer},
		{Repeats, Counter, "{failure}", "Failures to tell a broker or a store something that is tried until it succeeds: output, dead_letter, settlement_hook or settlement.", []string{AttrConsumer, AttrStep}},
		{DrainTimeouts, Counter, "{drain}", "Drains that ended with attempts still running.", consumer},

		{Running, Gauge, "{attempt}", "Attempts running now.", consumer},
		{Concurrency, Gauge, "{attempt}", "The most that may run at once.", consumer},
		{InFlight, Gauge, "{delivery}", "Deliveries held: received and not settled.", consumer},
		{Prefetch, Gauge, "{delivery}", "The most that may be held.", consumer},
		{InFlightSize, Gauge, "By", "Payloads and headers of what is held.", consumer},
		{PrefetchSize, Gauge, "By", "The most of it that may be held.", consumer},
		{OldestInFlight, Gauge, "s", "How long the oldest running attempt has run; 0 while none does.", consumer},
		{Parked, Gauge, "{delivery}", "Deliveries that wait in this process for their next attempt.", consumer},
		{HeldByOrder, Gauge, "{delivery}", "Deliveries that wait behind a parked one of their order.", consumer},

		{Backlog, Gauge, "{message}", "Messages of the group at the broker: ready to be handed out, delayed until their time, or held by any instance. Absent where the broker cannot count, or did not answer.", []string{AttrConsumer, AttrTopic, AttrState}},
		{BacklogOldest, Gauge, "s", "Age of the oldest of them; 0 if there is none or the broker does not know.", []string{AttrConsumer, AttrTopic}},

		{StoreUp, Gauge, "", "1 if the last call to the dedup store succeeded, or there was none yet.", consumer},
		{StoreFailures, Counter, "{call}", "Calls to the dedup store that failed.", consumer},
	}
}
