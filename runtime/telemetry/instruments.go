package telemetry

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Observer takes the values of one collection.
type Observer struct {
	to     metric.Observer
	ints   map[string]metric.Int64Observable
	floats map[string]metric.Float64Observable
}

// Count gives the value of a counter or gauge that is no time.
func (o Observer) Count(name string, v int64, attrs ...attribute.KeyValue) {
	o.to.ObserveInt64(o.ints[name], v, metric.WithAttributes(attrs...))
}

// Flag gives 1 or 0.
func (o Observer) Flag(name string, on bool, attrs ...attribute.KeyValue) {
	v := int64(0)
	if on {
		v = 1
	}
	o.Count(name, v, attrs...)
}

// Seconds gives the value of a time.
func (o Observer) Seconds(name string, d time.Duration, attrs ...attribute.KeyValue) {
	o.to.ObserveFloat64(o.floats[name], d.Seconds(), metric.WithAttributes(attrs...))
}

// Observe has collect called for the values of counters and gauges whenever
// they are read, so that they cost nothing in between. It may be called more
// than once; each collect gives the metrics it knows.
func Observe(m metric.Meter, collect func(context.Context, Observer)) error {
	o := Observer{ints: map[string]metric.Int64Observable{}, floats: map[string]metric.Float64Observable{}}
	var all []metric.Observable
	for _, d := range Metrics() {
		var err error
		switch about, unit := metric.WithDescription(d.About), metric.WithUnit(d.Unit); {
		case d.Kind == Histogram:
			continue
		case d.Kind == Counter:
			o.ints[d.Name], err = m.Int64ObservableCounter(d.Name, about, unit)
		case d.Unit == "s":
			o.floats[d.Name], err = m.Float64ObservableGauge(d.Name, about, unit)
		default:
			o.ints[d.Name], err = m.Int64ObservableGauge(d.Name, about, unit)
		}
		if err != nil {
			return fmt.Errorf("metric %s: %w", d.Name, err)
		}
		if i := o.ints[d.Name]; i != nil {
			all = append(all, i)
		} else {
			all = append(all, o.floats[d.Name])
		}
	}
	_, err := m.RegisterCallback(func(ctx context.Context, to metric.Observer) error {
		now := o
		now.to = to
		collect(ctx, now)
		return nil
	}, all...)
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}

// Durations records [AttemptDuration] of one consumer.
type Durations struct {
	histogram metric.Float64Histogram
	with      []metric.RecordOption // made once: attempts are many
}

// NewDurations makes the histogram for a consumer.
func NewDurations(m metric.Meter, consumer string) (*Durations, error) {
	for _, d := range Metrics() {
		if d.Name != AttemptDuration {
			continue
		}
		h, err := m.Float64Histogram(d.Name, metric.WithDescription(d.About), metric.WithUnit(d.Unit),
			// The buckets that OpenTelemetry's messaging conventions ask for.
			metric.WithExplicitBucketBoundaries(.005, .01, .025, .05, .075, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10))
		if err != nil {
			return nil, fmt.Errorf("metric %s: %w", d.Name, err)
		}
		set := attribute.NewSet(attribute.String(AttrConsumer, consumer))
		return &Durations{h, []metric.RecordOption{metric.WithAttributeSet(set)}}, nil
	}
	panic("telemetry: the table of metrics has no " + AttemptDuration)
}

// Record adds one attempt; ctx is that of its message, so that an exemplar can
// name its trace.
func (d *Durations) Record(ctx context.Context, took time.Duration) {
	d.histogram.Record(ctx, took.Seconds(), d.with...)
}
