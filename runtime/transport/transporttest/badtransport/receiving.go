package badtransport

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/leat-io/leat/runtime/transport"
)

func receiving() []Fault {
	return []Fault{
		{
			Name: "loses headers", Caught: "A2_fidelity",
			New: stateless(bad{open: each(func(d *transport.Delivery) {
				d.Headers = slices.DeleteFunc(slices.Clone(d.Headers), func(h transport.Header) bool { return h.Value == "" })
			})}),
		},
		{
			Name: "makes nil an empty payload", Caught: "A2_fidelity",
			New: stateless(bad{open: each(func(d *transport.Delivery) {
				if d.Payload == nil {
					d.Payload = []byte{}
				}
			})}),
		},
		{
			Name: "gives foreign messages no id", Caught: "A3_foreign", Also: []string{"SPI_coordinates"},
			New: stateless(bad{open: each(func(d *transport.Delivery) {
				if strings.HasPrefix(d.ID, "memory:") {
					d.ID = ""
				}
			})}),
		},
		{
			Name: "cannot decode", Caught: "A8_codec",
			New: stateless(bad{open: each(func(d *transport.Delivery) {
				if d.Headers.Get("content-encoding") != "" {
					d.Payload = nil
				}
			})}),
		},
		{
			Name: "overtakes", Caught: "B1_key_order",
			Also: []string{
				"B2_release_order", "B3_order_after_close", "B3_order_after_kill", "B5_bytes", "C3_partial_batch",
				"G4_late_order", "I9_unreachable", "M6_idle",
			},
			New: stateless(bad{open: received(func(ds []*transport.Delivery) []*transport.Delivery {
				slices.Reverse(ds)
				return ds
			})}),
		},
		{
			Name: "overtakes at a redelivery", Caught: "B3_order_after_close", Also: []string{"B2_release_order", "B3_order_after_kill", "C3_partial_batch"},
			New: stateless(bad{open: received(func(ds []*transport.Delivery) []*transport.Delivery {
				if len(ds) > 0 && ds[0].Redelivered {
					slices.Reverse(ds)
				}
				return ds
			})}),
		},
		{
			Name: "hands out twice", Caught: "A6_exclusive", Broad: true,
			New: stateless(bad{open: func(c transport.Consumer, _ transport.ConsumerConfig) transport.Consumer {
				var again []*transport.Delivery
				n := 0
				return &consumer{Consumer: c, receive: func(ctx context.Context, limit int, maxBytes int64) ([]*transport.Delivery, error) {
					if len(again) > 0 {
						ds := again
						again = nil
						return ds, nil
					}
					ds, err := c.Receive(ctx, limit, maxBytes)
					if n++; n%10 == 0 && len(ds) > 0 {
						again = ds[:1]
					}
					return ds, err
				}}
			}}),
		},
		{
			Name: "ignores the limit", Caught: "B5_limit",
			Also: []string{"A5_late_group", "A5_start", "A7_too_large", "C2_killed", "D2_never_early", "I1_reopen", "I1_restart", "I2_crash", "SPI_declare"}, // which take some of many
			New: stateless(bad{open: func(c transport.Consumer, _ transport.ConsumerConfig) transport.Consumer {
				return &consumer{Consumer: c, receive: func(ctx context.Context, limit int, maxBytes int64) ([]*transport.Delivery, error) {
					return c.Receive(ctx, limit+1, maxBytes)
				}}
			}}),
		},
		{
			Name: "ignores maxBytes", Caught: "B5_bytes",
			New: stateless(bad{open: func(c transport.Consumer, _ transport.ConsumerConfig) transport.Consumer {
				return &consumer{Consumer: c, receive: func(ctx context.Context, limit int, _ int64) ([]*transport.Delivery, error) {
					return c.Receive(ctx, limit, math.MaxInt64)
				}}
			}}),
		},
		{
			Name: "ignores Pause", Caught: "B4_pause",
			New: stateless(bad{open: func(c transport.Consumer, _ transport.ConsumerConfig) transport.Consumer {
				return &consumer{Consumer: c, pause: func(*transport.Assignment) {}}
			}}),
		},
		{
			// As watermill-sqlite on modernc's driver, whose lock on a row ends then.
			Name: "goes on to the next when one is not taken in time", Caught: "B4_pause",
			New: stateless(bad{open: skipsWhatWaits}),
		},
		{
			Name: "is over when a Receive ends", Caught: "H4_receive_ends", Broad: true,
			New: stateless(bad{open: func(c transport.Consumer, _ transport.ConsumerConfig) transport.Consumer {
				over := false
				return &consumer{Consumer: c, receive: func(ctx context.Context, limit int, maxBytes int64) ([]*transport.Delivery, error) {
					if over {
						return nil, errors.New("connection lost")
					}
					ds, err := c.Receive(ctx, limit, maxBytes)
					over = ctx.Err() != nil
					return ds, err
				}}
			}}),
		},
		{
			Name: "waits on when a Receive ends", Caught: "H4_receive_ends", Also: []string{"I3_frozen", "I8_half_open"},
			New: stateless(bad{open: func(c transport.Consumer, _ transport.ConsumerConfig) transport.Consumer {
				return &consumer{Consumer: c, receive: func(ctx context.Context, limit int, maxBytes int64) ([]*transport.Delivery, error) {
					ds, err := c.Receive(ctx, limit, maxBytes)
					if ctx.Err() != nil {
						<-time.After(time.Hour)
					}
					return ds, err
				}}
			}}),
		},
		{
			Name: "counts deliveries as offsets", Caught: "SPI_coordinates",
			New: stateful(func() bad {
				var n atomic.Int64
				return bad{open: each(func(d *transport.Delivery) { d.Offset = n.Add(1) })}
			}),
		},
	}
}

// skipsWhatWaits has a paused assignment go past its next message when it is
// paused for too long: an ack of what follows is one of that too.
func skipsWhatWaits(c transport.Consumer, _ transport.ConsumerConfig) transport.Consumer {
	const lock = 100 * time.Millisecond
	paused, past := map[*transport.Assignment]time.Time{}, map[*transport.Assignment]bool{}
	return &consumer{
		Consumer: c,
		pause: func(a *transport.Assignment) {
			paused[a] = time.Now()
			c.Pause(a)
		},
		resume: func(a *transport.Assignment) {
			since, ok := paused[a]
			past[a] = ok && time.Since(since) > lock
			delete(paused, a)
			c.Resume(a)
		},
		receive: func(ctx context.Context, limit int, maxBytes int64) ([]*transport.Delivery, error) {
			for {
				ds, err := c.Receive(ctx, limit, maxBytes)
				if len(ds) == 0 || !past[ds[0].Assignment] {
					return ds, err
				}
				delete(past, ds[0].Assignment)
				if err := c.Settle(ctx, []transport.Settlement{{Delivery: ds[0], Verdict: transport.Ack}}); err != nil {
					return nil, err
				}
				if len(ds) > 1 {
					return ds[1:], nil
				}
			}
		},
	}
}
