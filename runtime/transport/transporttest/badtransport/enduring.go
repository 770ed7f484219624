package badtransport

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/transporttest"
)

// deaf is a broker from which nothing comes any more once it is told to be so.
func deaf(b *transporttest.Broker) (become func()) {
	var is atomic.Bool
	around(b, bad{open: func(c transport.Consumer, _ transport.ConsumerConfig) transport.Consumer {
		return &consumer{Consumer: c, receive: func(ctx context.Context, limit int, maxBytes int64) ([]*transport.Delivery, error) {
			var ds []*transport.Delivery
			var err error
			if !is.Load() {
				ds, err = c.Receive(ctx, limit, maxBytes)
			}
			if is.Load() { // by now
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return ds, err
		}}
	}})
	return func() { is.Store(true) }
}

// hurtLink notes what is done to a link.
type hurtLink struct {
	transporttest.Link
	stall, latency func()
}

func (l hurtLink) Stall() {
	if l.stall != nil {
		l.stall()
	}
	l.Link.Stall()
}

func (l hurtLink) Latency(d time.Duration) {
	if l.latency != nil {
		l.latency()
	}
	l.Link.Latency(d)
}

// around breaks all of a broker's transports.
func around(b *transporttest.Broker, with bad) {
	connect := b.Transport
	b.Transport = func(tb transporttest.TB) transport.Transport { return stateless(with)()(connect(tb)) }
}

// thenDeaf has a broker become deaf when something is done to it.
func thenDeaf(what, caught string, hurt func(b *transporttest.Broker, become func())) Fault {
	return Fault{Name: "is deaf after " + what, Caught: caught, Broker: func(b *transporttest.Broker) { hurt(b, deaf(b)) }}
}

// enduring are faults that show when the broker is in trouble.
func enduring() []Fault {
	all := []Fault{
		thenDeaf("a restart", "I1_restart", func(b *transporttest.Broker, become func()) {
			b.Restart = func(transporttest.TB) { become() }
		}),
		thenDeaf("a crash", "I2_crash", func(b *transporttest.Broker, become func()) {
			b.Crash = func(transporttest.TB) { become() }
		}),
		thenDeaf("a freeze", "I3_frozen", func(b *transporttest.Broker, become func()) {
			freeze := b.Freeze
			b.Freeze = func(tb transporttest.TB) func() {
				become()
				return freeze(tb)
			}
		}),
		thenDeaf("a stall", "I8_half_open", func(b *transporttest.Broker, become func()) {
			b.Link = hurtLink{Link: b.Link, stall: become}
		}),
		{Name: "is deaf when its link is slow", Caught: "I5_slow", Broker: func(b *transporttest.Broker) {
			b.Link = hurtLink{Link: b.Link, latency: deaf(b)}
		}},
		thenDeaf("a denial", "I10_denied", func(b *transporttest.Broker, become func()) {
			deny := b.Deny
			b.Deny = func(tb transporttest.TB) func() {
				become()
				return deny(tb)
			}
		}),
		thenDeaf("a jump of its clock", "D7_clock_jumps", func(b *transporttest.Broker, become func()) {
			b.Jump = func(transporttest.TB, time.Duration) { become() }
		}),
		thenDeaf("it ends connections", "P1_disconnected", func(b *transporttest.Broker, become func()) {
			b.Disconnect = func(transporttest.TB) { become() }
		}),
		{
			Name: "does not live through idleness", Caught: "M6_idle",
			New: stateful(func() bad {
				last := time.Now()
				var mu sync.Mutex
				return bad{publish: func(p transport.Producer, ctx context.Context, topic string, msgs []*message.Message) error {
					mu.Lock()
					away := time.Since(last) > 1500*time.Millisecond && time.Since(last) < time.Minute
					last = time.Now()
					mu.Unlock()
					if away {
						return errors.New("server has gone away")
					}
					return p.Publish(ctx, topic, msgs...)
				}}
			}),
			Also: []string{"A7_honest_publish", "I3_frozen", "I8_half_open", "C4_slow_handler", "H1_leave"}, // which rest meanwhile
		},
		{
			Name: "waits in silence for what is lost", Caught: "I4_cut",
			Also: []string{"C6_resets", "I10_denied", "P1_disconnected", "SPI_close"}, // which end connections too
			New: stateless(bad{open: func(c transport.Consumer, _ transport.ConsumerConfig) transport.Consumer {
				return &consumer{Consumer: c, receive: func(ctx context.Context, limit int, maxBytes int64) ([]*transport.Delivery, error) {
					ds, err := c.Receive(ctx, limit, maxBytes)
					if _, ok := errors.AsType[transport.NeedBytes](err); err != nil && !ok {
						<-ctx.Done()
					}
					return ds, err
				}}
			}}),
		},
		{
			Name: "takes a lost answer for a good one", Caught: "C6_resets", Also: []string{"SPI_unsupported"},
			New: stateless(bad{open: func(c transport.Consumer, _ transport.ConsumerConfig) transport.Consumer {
				return &consumer{Consumer: c, settle: func(ctx context.Context, batch []transport.Settlement) error {
					_ = c.Settle(ctx, batch)
					return nil
				}}
			}}),
		},
		{
			Name: "publishes without an end", Caught: "I8_half_open", Also: []string{"A7_honest_publish", "I3_frozen"},
			New: stateless(bad{publish: func(p transport.Producer, ctx context.Context, topic string, msgs []*message.Message) error {
				return p.Publish(context.WithoutCancel(ctx), topic, msgs...)
			}}),
		},
		{
			Name: "takes an outage for a refusal", Caught: "I9_unreachable",
			Also: []string{"I3_frozen", "I8_half_open"},
			New: stateless(bad{
				fail: transport.Refuse,
				declare: func(tr transport.Transport, ctx context.Context, mode transport.Topology, ds []transport.Declaration) error {
					return transport.Refuse(tr.Declare(ctx, mode, ds...))
				},
			}),
		},
		{
			Name: "marks what comes first as coming again", Caught: "SPI_redelivered",
			Also: []string{"B3_order_after_close", "B3_order_after_kill"},
			New:  stateless(bad{open: each(func(d *transport.Delivery) { d.Redelivered = true })}),
		},
		{
			Name: "tries for ever what is too large", Caught: "A7_too_large",
			Also: []string{"A7_honest_publish", "A4_refused"},
			New: stateless(bad{publish: func(p transport.Producer, ctx context.Context, topic string, msgs []*message.Message) error {
				err := p.Publish(ctx, topic, msgs...)
				if pe, ok := errors.AsType[*transport.PublishError](err); ok {
					for i := range pe.Failed {
						pe.Failed[i].Permanent = false
					}
				}
				return err
			}}),
		},
		{
			Name: "hands out again what was settled, when something comes late", Caught: "G4_late_under_load", Also: []string{"G4_late_order"},
			New: stateful(func() bad {
				var mu sync.Mutex
				var settled []*transport.Delivery
				return bad{open: func(c transport.Consumer, _ transport.ConsumerConfig) transport.Consumer {
					return &consumer{
						Consumer: c,
						receive: func(ctx context.Context, limit int, maxBytes int64) ([]*transport.Delivery, error) {
							ds, err := c.Receive(ctx, limit, maxBytes)
							mu.Lock()
							defer mu.Unlock()
							late := slices.ContainsFunc(ds, func(d *transport.Delivery) bool { return strings.HasPrefix(d.ID, "late-0-") })
							if late && len(ds) < limit && len(settled) > 0 {
								ds = append(ds, settled[0])
							}
							return ds, err
						},
						settle: func(ctx context.Context, batch []transport.Settlement) error {
							mu.Lock()
							for _, st := range batch {
								settled = append(settled, st.Delivery)
							}
							mu.Unlock()
							return c.Settle(ctx, batch)
						},
					}
				}}
			}),
		},
	}
	late := []string{"G4_late_commit", "G4_commit_order", "G4_late_group", "G4_late_groups", "G4_late_order", "G4_late_under_load"}
	for _, name := range late {
		all = append(all, Fault{
			Name: "loses what commits late, in " + name, Caught: name, Also: late,
			Broker: func(b *transporttest.Broker) {
				b.PublishLater = func(transporttest.TB, string, ...*message.Message) func() { return func() {} }
			},
		})
	}
	return all
}
