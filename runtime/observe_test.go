package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/leat-io/leat/runtime/telemetry"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
)

// meter reads what a router measures.
type meter struct {
	*testing.T

	reader *sdkmetric.ManualReader
}

// measure has the world's router measure.
func (w *world) measure() meter {
	reader := sdkmetric.NewManualReader()
	w.opts.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	return meter{w.T, reader}
}

// read gives every series as "name consumer value…", in the order of the attributes' names.
func (m meter) read() map[string]float64 {
	m.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(m, m.reader.Collect(context.Background(), &all))
	out := map[string]float64{}
	for _, scope := range all.ScopeMetrics {
		require.Equal(m, telemetry.Scope, scope.Scope.Name)
		for _, metric := range scope.Metrics {
			for labels, v := range points(m.T, metric.Data) {
				out[metric.Name+labels] = v
			}
		}
	}
	return out
}

func points(t *testing.T, data metricdata.Aggregation) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	switch d := data.(type) {
	case metricdata.Sum[int64]:
		require.True(t, d.IsMonotonic)
		for _, p := range d.DataPoints {
			out[labels(p)] = float64(p.Value)
		}
	case metricdata.Gauge[int64]:
		for _, p := range d.DataPoints {
			out[labels(p)] = float64(p.Value)
		}
	case metricdata.Gauge[float64]:
		for _, p := range d.DataPoints {
			out[labels(p)] = p.Value
		}
	case metricdata.Histogram[float64]:
		for _, p := range d.DataPoints {
			at := ""
			for _, a := range p.Attributes.ToSlice() {
				at += " " + a.Value.AsString()
			}
			out[" count"+at], out[" sum"+at] = float64(p.Count), p.Sum
		}
	default:
		require.Failf(t, "unexpected kind of data", "%T", data)
	}
	return out
}

func labels[N int64 | float64](p metricdata.DataPoint[N]) (out string) {
	for _, a := range p.Attributes.ToSlice() {
		out += " " + a.Value.AsString()
	}
	return out
}

// TestSeriesAreThereFromTheStart: rates of counters would miss what comes
// first if their series came with it.
func TestSeriesAreThereFromTheStart(t *testing.T) {
	t.Parallel()
	worlds(t, func(w *world) {
		m := w.measure()
		w.consume(func(*message.Message) ([]*message.Message, error) { return nil, nil }, w.policy())
		got := m.read()
		for o := transport.Handled; o <= transport.Interrupted; o++ {
			require.Contains(w, got, "leat.outcomes c "+o.String())
		}
		for _, reason := range []string{
			transport.ReasonExhausted, transport.ReasonPermanent, transport.ReasonUndecodable, transport.ReasonIDReused,
			transport.ReasonUnpublished, "other",
		} {
			require.Contains(w, got, "leat.dead_letters c "+reason)
		}
		for _, step := range []string{"output", "dead_letter", "settlement_hook", "settlement"} {
			require.Contains(w, got, "leat.repeats c "+step)
		}
		for name, want := range map[string]float64{
			"leat.ready": 1, "leat.broker.connected c": 1,
			"leat.consumer.state c starting": 0, "leat.consumer.state c running": 1, "leat.consumer.state c held": 0,
			"leat.consumer.state c blocked": 0, "leat.consumer.state c reconnecting": 0, "leat.consumer.state c draining": 0,
			"leat.consumer.state c stopped": 0, "leat.consumer.state c failed": 0,
			"leat.deliveries c": 0, "leat.outputs c": 0, "leat.drain.timeouts c": 0,
			"leat.running c": 0, "leat.concurrency c": 8, "leat.in_flight c": 0, "leat.prefetch c": 64,
			"leat.in_flight.size c": 0, "leat.prefetch.size c": 16 << 20, "leat.oldest_in_flight c": 0,
			"leat.parked c": 0, "leat.held_by_order c": 0,
			"leat.backlog c delayed in": 0, "leat.backlog c held in": 0, "leat.backlog c ready in": 0, "leat.backlog.oldest c in": 0,
		} {
			require.Contains(w, got, name)
			require.InDelta(w, want, got[name], 0, name)
		}
	})
}

// TestHonestMetrics: counters say what has happened, to the message.
func TestHonestMetrics(t *testing.T) {
	t.Parallel()
	worlds(t, func(w *world) {
		m := w.measure()
		var slept atomic.Int64
		w.consume(func(msg *message.Message) ([]*message.Message, error) {
			n, _ := strconv.Atoi(msg.UUID)
			slept.Add(1)
			time.Sleep(time.Second)
			switch {
			case n%10 == 0:
				return nil, permanent{errors.New("never")}
			case n%10 == 1 && transport.AttemptFrom(msg.Context()).Number() < 3:
				return nil, errors.New("not yet")
			}
			return []*message.Message{message.NewMessage("", msg.Payload)}, nil
		}, w.policy(func(p *transport.Policy) { p.PublishTo = "out" }))
		var msgs []*message.Message
		for i := range 100 {
			msgs = append(msgs, msg(strconv.Itoa(i), "", "x"))
		}
		w.publish("in", msgs...)
		w.settled()
		ran := len(w.order())
		require.EqualValues(w, slept.Load(), ran)
		require.NoError(w, w.drain())

		got := m.read()
		require.Equal(w, 120, ran)
		require.InDelta(w, ran, got["leat.attempt.duration count c"], 0)
		require.InDelta(w, ran, got["leat.attempt.duration sum c"], 0.001, "each took a second")
		for name, want := range map[string]int{
			"leat.outcomes c handled": 90, "leat.outcomes c retried": 20, "leat.outcomes c dead": 10,
			"leat.dead_letters c " + transport.ReasonPermanent: 10, "leat.outputs c": 90,
			"leat.ready": 0, "leat.broker.connected c": 0, "leat.consumer.state c stopped": 1,
			"leat.in_flight c": 0, "leat.running c": 0,
		} {
			require.Contains(w, got, name)
			require.InDelta(w, want, got[name], 0, name)
		}
		require.Len(w, w.read("out"), int(got["leat.outputs c"]))
		require.Len(w, w.read("in--g--dead"), int(got["leat.outcomes c dead"]))
	})
}

// odd is an error that names a reason of its own.
type odd struct {
	permanent

	reason string
}

func (o odd) DeadReason() string { return o.reason }

// TestNoLabelFromMessages: ids, topics of outputs, errors and their reasons
// make no series.
func TestNoLabelFromMessages(t *testing.T) {
	t.Parallel()
	inMemory(t, memory.Options{}, func(w *world) {
		m := w.measure()
		w.consume(func(msg *message.Message) ([]*message.Message, error) {
			if err := transport.Emit(msg.Context(), "out-"+msg.UUID, message.NewMessage("", nil)); err != nil {
				return nil, err
			}
			if len(msg.UUID)%2 == 0 {
				return nil, nil
			}
			return nil, odd{permanent{fmt.Errorf("text of %s", msg.UUID)}, "reason " + msg.UUID}
		}, w.policy())
		remove := w.broker.Inject(memory.Fault{Op: memory.OpPublish, Topic: "out-message-0", Times: 10, Err: errors.New("busy")})
		defer remove()
		w.publish("in", msg("first", "", ""))
		w.settled()
		before := len(m.read())
		var msgs []*message.Message
		for i := range 2000 {
			msgs = append(msgs, msg("message-"+strconv.Itoa(i), "key-"+strconv.Itoa(i), ""))
		}
		w.publish("in", msgs...)
		s := w.settled()
		after := m.read()
		require.EqualValues(w, 2001, s.Count(transport.Handled)+s.Count(transport.Dead))
		require.Len(w, after, before)
		require.InDelta(w, s.Count(transport.Dead), after["leat.dead_letters c other"], 0)
	})
}

// TestOutageIsAStateAndAMetric: readiness stays.
func TestOutageIsAStateAndAMetric(t *testing.T) {
	t.Parallel()
	inMemory(t, memory.Options{}, func(w *world) {
		m := w.measure()
		w.consume(func(*message.Message) ([]*message.Message, error) { return nil, nil }, w.policy())
		outage := errors.New("no route to host")
		heals := []func(){
			w.broker.Inject(memory.Fault{Op: memory.OpReceive, Err: outage}),
			w.broker.Inject(memory.Fault{Op: memory.OpOpenConsumer, Err: outage}),
			w.broker.Inject(memory.Fault{Op: memory.OpDepth, Hang: true}),
		}
		time.Sleep(time.Minute)
		began := time.Now()
		got := m.read()
		require.LessOrEqual(w, time.Since(began), 2*time.Second, "a broker that hangs holds up nobody for long")
		require.NotContains(w, got, "leat.backlog c ready in", "what is not known is not told")
		for name, want := range map[string]int{
			"leat.broker.connected c": 0, "leat.consumer.state c reconnecting": 1, "leat.consumer.state c running": 0, "leat.ready": 1,
		} {
			require.InDelta(w, want, got[name], 0, name)
		}
		for _, heal := range heals {
			heal()
		}
		time.Sleep(time.Minute)
		got = m.read()
		for name, want := range map[string]int{"leat.broker.connected c": 1, "leat.consumer.state c running": 1, "leat.ready": 1} {
			require.InDelta(w, want, got[name], 0, name)
		}
		require.Contains(w, got, "leat.backlog c ready in")
	})
}

// countingTransport counts how often it is asked for a depth.
type countingTransport struct {
	transport.Transport

	mu    sync.Mutex
	asked int
}

func (t *countingTransport) Depth(ctx context.Context, topic, group string) (transport.Depth, error) {
	t.mu.Lock()
	t.asked++
	t.mu.Unlock()
	return t.Transport.Depth(ctx, topic, group)
}

// TestScrapesDoNotHammerTheBroker: it is asked every five seconds at most.
func TestScrapesDoNotHammerTheBroker(t *testing.T) {
	t.Parallel()
	inMemory(t, memory.Options{}, func(w *world) {
		counting := &countingTransport{Transport: w.tr}
		w.tr = counting
		m := w.measure()
		w.consume(func(*message.Message) ([]*message.Message, error) { return nil, nil }, w.policy())
		began := time.Now()
		for time.Since(began) < 20*time.Second {
			m.read()
			time.Sleep(100 * time.Millisecond)
		}
		require.Equal(w, 4, counting.asked)
	})
}

// TestDeadLetterDownIsCounted: each failure of the same publish is one repeat.
func TestDeadLetterDownIsCounted(t *testing.T) {
	t.Parallel()
	inMemory(t, memory.Options{}, func(w *world) {
		m := w.measure()
		w.broker.Inject(memory.Fault{Op: memory.OpPublish, Topic: "in--g--dead", Times: 3, Err: errors.New("busy")})
		w.consume(func(*message.Message) ([]*message.Message, error) { return nil, permanent{errors.New("never")} }, w.policy())
		w.publish("in", msg("1", "", ""))
		s := w.settled()
		got := m.read()
		require.InDelta(w, 3, got["leat.repeats c dead_letter"], 0)
		require.EqualValues(w, 3, s.Repeats["dead_letter"])
		require.InDelta(w, 1, got["leat.outcomes c dead"], 0)
		require.InDelta(w, 1, got["leat.attempt.duration count c"], 0, "a repeated publish is no attempt")
	})
}
