package config

import "time"

// Policy is how a consumer treats its messages: what `defaults:` may hold, and every consumer may override.
type Policy struct {
	// Concurrency is how many handlers run at once. Defaults to 8.
	Concurrency int `yaml:"concurrency" min:"1" max:"100000"`
	// Prefetch is how many deliveries may be held. Defaults to 8 × Concurrency.
	Prefetch int `yaml:"prefetch" min:"1" max:"1000000"`
	// PrefetchBytes is how many payload bytes may be held. Defaults to 16MiB.
	PrefetchBytes Size `yaml:"prefetch_bytes" min:"1KiB"`
	// Timeout bounds one attempt. Defaults to 20s.
	Timeout Duration `yaml:"timeout" min:"1ms"`
	// Retry is what happens after a failed attempt.
	Retry Retry `yaml:"retry"`
	// DeadLetter is where messages go that can't be handled. Defaults to {topic}--{group}--dead.
	DeadLetter DeadLetter `yaml:"dead_letter"`
	// OrderedBy is what keeps messages in order. Defaults to what the transport keeps.
	OrderedBy OrderedBy `yaml:"ordered_by"`
	// OrderScope is worker where order within one worker, not the whole group, is understood to be enough; else empty.
	OrderScope string `yaml:"order_scope" enum:"worker"`
	// Dedup leaves out messages that were handled already. Default: off.
	Dedup *Dedup `yaml:"dedup"`
	// Ack is on_success (at-least-once) or on_receive (at-most-once). Defaults to on_success.
	Ack string `yaml:"ack" enum:"on_success,on_receive"`
	// Wrap is middleware outside everything, in order: it sees the message as received.
	Wrap []Component `yaml:"wrap"`
	// Use is middleware around the handler, in order, run with each attempt.
	Use []Component `yaml:"use"`
}

// The ack modes.
const (
	AckOnSuccess = "on_success"
	AckOnReceive = "on_receive"
)

// The retry orders. An empty one means keep where the consumer is ordered, else overtake.
const (
	OrderKeep     = "keep"     // later messages of the key wait
	OrderOvertake = "overtake" // later messages of the key may go first
)

// Unlimited is the number of attempts that never ends.
const Unlimited = -1

// Retry says how often and how fast a failed message is tried again.
// The wait before attempt n+1 is InitialInterval × Multiplier^(n-1), at most MaxInterval, lengthened by up to Jitter of itself.
type Retry struct {
	// Attempts counts the first run. -1 is unlimited, 0 is an error. Defaults to 5.
	Attempts int `yaml:"attempts" max:"1000000"`
	// InitialInterval is the first wait. Defaults to 200ms.
	InitialInterval Duration `yaml:"initial_interval" min:"1ms"`
	// MaxInterval bounds the wait before jitter. Defaults to 30s.
	MaxInterval Duration `yaml:"max_interval" min:"1ms"`
	// Multiplier is what each wait is longer than the last by. Defaults to 2.
	Multiplier float64 `yaml:"multiplier" min:"1" max:"100"`
	// Jitter is the share, from 0 to 1, by which a wait may be longer. Defaults to 0.5.
	Jitter float64 `yaml:"jitter" min:"0" max:"1"`
	// Order is keep, overtake, or empty: keep where the consumer is ordered, else overtake.
	Order string `yaml:"order" enum:"keep,overtake"`
	// MaxPark is the longest wait that is kept in memory, where the broker can take longer ones. Defaults to 10s.
	MaxPark Duration `yaml:"max_park"`
}

// Validate checks what no single option shows.
func (r Retry) Validate() error {
	switch {
	case r.Attempts == 0:
		return OptionErrorf("attempts", "0 attempts would never run the handler; write 1 for no retry, -1 for no limit")
	case r.Attempts < Unlimited:
		return OptionErrorf("attempts", "%d is not a number of attempts; write 1 for no retry, -1 for no limit", r.Attempts)
	case r.MaxInterval < r.InitialInterval:
		return OptionErrorf("max_interval", "%s is shorter than initial_interval (%s); raise it", r.MaxInterval, r.InitialInterval)
	}
	return nil
}

// Longest is the longest time from the first to the end of the last attempt: all waits with full jitter, and a timeout
// for each attempt. Where attempts are unlimited it is one wait and one attempt, since no window covers them all.
func (r Retry) Longest(timeout Duration) Duration {
	longer := 1 + r.Jitter
	if r.Attempts == Unlimited {
		return saturated(float64(r.MaxInterval)*longer + float64(timeout))
	}
	total := float64(timeout) * float64(r.Attempts)
	wait, most := float64(r.InitialInterval), float64(r.MaxInterval)
	for left := r.Attempts - 1; left > 0; left-- {
		if wait >= most || r.Multiplier == 1 {
			total += min(wait, most) * longer * float64(left)
			break
		}
		total += wait * longer
		wait *= r.Multiplier
	}
	return saturated(total)
}

func saturated(nanoseconds float64) Duration {
	const most = float64(1 << 62)
	return Duration(min(nanoseconds, most))
}

// DedupByID is the default dedup key: the message's own id.
const DedupByID = "id"

// Dedup says by what a message is recognised as handled already, and for how long.
type Dedup struct {
	// Key is id, metadata.NAME or payload.PATH. Defaults to id.
	Key string `yaml:"key"`
	// Window is how long a key is remembered. Defaults to 24h.
	Window Duration `yaml:"window" min:"1s"`
}

// SetDefaults fills a Dedup that the file turns on.
func (d *Dedup) SetDefaults() { *d = Dedup{Key: DedupByID, Window: Duration(24 * time.Hour)} }

// Validate checks the key.
func (d *Dedup) Validate() error {
	if d.Key != DedupByID && !isExpression(d.Key) {
		return OptionErrorf("key", "not a dedup key; write id, metadata.NAME or payload.PATH")
	}
	return nil
}

func defaultPolicy() Policy {
	return Policy{
		Concurrency:   8,
		PrefetchBytes: 16 << 20,
		Timeout:       Duration(20 * time.Second),
		Retry: Retry{
			Attempts:        5,
			InitialInterval: Duration(200 * time.Millisecond),
			MaxInterval:     Duration(30 * time.Second),
			Multiplier:      2,
			Jitter:          0.5,
			MaxPark:         Duration(10 * time.Second),
		},
		DeadLetter: DefaultDeadLetter,
		Ack:        AckOnSuccess,
	}
}
