package badtransport

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leat-io/leat/runtime/transport"
)

// oldOwners has what an old owner says, by what old says of it, told in the
// name of the present one.
func oldOwners(old func(*consumer, *transport.Delivery) bool) bad {
	type owner struct {
		c transport.Consumer
		d *transport.Delivery
	}
	var last sync.Map
	return bad{open: func(c transport.Consumer, cfg transport.ConsumerConfig) transport.Consumer {
		out := &consumer{Consumer: c}
		out.receive = func(ctx context.Context, limit int, maxBytes int64) ([]*transport.Delivery, error) {
			ds, err := c.Receive(ctx, limit, maxBytes)
			for _, d := range ds {
				last.Store(cfg.Group+d.ID, owner{c, d})
			}
			return ds, err
		}
		out.settle = func(ctx context.Context, batch []transport.Settlement) error {
			for _, st := range batch {
				to := c
				if now, ok := last.Load(cfg.Group + st.Delivery.ID); ok && old(out, st.Delivery) {
					to, st.Delivery = now.(owner).c, now.(owner).d
				}
				if err := to.Settle(ctx, []transport.Settlement{st}); err != nil {
					return err
				}
			}
			return nil
		}
		out.close = func(ctx context.Context) error {
			out.close = nil
			return c.Close(ctx)
		}
		return out
	}}
}

func owning() []Fault {
	return []Fault{
		{
			Name: "lets an old owner settle", Caught: "C2_fenced", Also: []string{"C7_settle_late"},
			New: stateful(func() bad {
				return oldOwners(func(_ *consumer, d *transport.Delivery) bool { return d.Assignment.Revoked() })
			}),
		},
		{
			Name: "settles after Close", Caught: "C7_settle_late",
			New: stateful(func() bad { return oldOwners(func(c *consumer, _ *transport.Delivery) bool { return c.close == nil }) }),
		},
		{
			Name: "overtakes after a crash", Caught: "B3_order_after_kill",
			New: stateful(func() bad {
				var open atomic.Int64
				return bad{open: func(c transport.Consumer, _ transport.ConsumerConfig) transport.Consumer {
					crashed := open.Add(1) > 1
					return &consumer{
						Consumer: c,
						receive: func(ctx context.Context, limit int, maxBytes int64) ([]*transport.Delivery, error) {
							ds, err := c.Receive(ctx, limit, maxBytes)
							if crashed && len(ds) > 0 && ds[0].Redelivered {
								slices.Reverse(ds)
							}
							return ds, err
						},
						close: func(ctx context.Context) error {
							open.Add(-1)
							return c.Close(ctx)
						},
					}
				}}
			}),
		},
		{
			Name: "is out of the group when it does not receive", Caught: "C4_slow_handler", Also: []string{"M6_idle"},
			New: stateless(bad{open: func(c transport.Consumer, _ transport.ConsumerConfig) transport.Consumer {
				idle := time.AfterFunc(time.Hour, func() { _ = c.Close(context.Background()) })
				return &consumer{
					Consumer: c,
					receive: func(ctx context.Context, limit int, maxBytes int64) ([]*transport.Delivery, error) {
						idle.Stop()
						defer idle.Reset(1200 * time.Millisecond)
						return c.Receive(ctx, limit, maxBytes)
					},
					close: func(ctx context.Context) error {
						idle.Stop()
						return c.Close(ctx)
					},
				}
			}}),
		},
		{
			Name: "hands over what is held", Caught: "H1_join",
			New: stateless(bad{open: func(c transport.Consumer, _ transport.ConsumerConfig) transport.Consumer {
				return &consumer{Consumer: c, receive: func(ctx context.Context, limit int, maxBytes int64) ([]*transport.Delivery, error) {
					ds, err := c.Receive(ctx, limit, maxBytes)
					for _, d := range ds {
						d.Assignment.OnLeave(func() {
							go func() { _ = c.Settle(context.WithoutCancel(ctx), verdicts(transport.Release, d)) }()
						})
					}
					return ds, err
				}}
			}}),
		},
		{
			Name: "revokes without a Leave", Caught: "H1_join", Also: []string{"D5_context"}, // whose cause it may change
			New: stateless(bad{open: func(c transport.Consumer, cfg transport.ConsumerConfig) transport.Consumer {
				shown := map[*transport.Assignment]*transport.Assignment{}
				inner := map[*transport.Assignment]*transport.Assignment{}
				return &consumer{
					Consumer: c,
					receive: func(ctx context.Context, limit int, maxBytes int64) ([]*transport.Delivery, error) {
						ds, err := c.Receive(ctx, limit, maxBytes)
						for _, d := range ds {
							a := d.Assignment
							if shown[a] == nil {
								out := transport.NewAssignment(cfg.Base, a.Topic, a.Partition) //nolint:contextcheck // as transports do
								shown[a], inner[out] = out, a
								a.OnLeave(func() {
									if a.Revoked() {
										out.Revoke()
									}
								})
								context.AfterFunc(a.Context(), out.Revoke) //nolint:contextcheck // the spell's, not ours
							}
							d.Assignment = shown[a]
						}
						return ds, err
					},
					pause:  func(a *transport.Assignment) { c.Pause(inner[a]) },
					resume: func(a *transport.Assignment) { c.Resume(inner[a]) },
				}
			}}),
		},
		{
			Name: "stays a member", Caught: "H1_leave", Broad: true,
			New: stateless(bad{open: func(c transport.Consumer, _ transport.ConsumerConfig) transport.Consumer {
				return &consumer{Consumer: c, close: func(context.Context) error { return nil }}
			}}),
		},
		{
			Name: "has contexts of its own", Caught: "D5_context",
			New: stateless(bad{config: func(c *transport.ConsumerConfig) { c.Base = context.Background() }}),
		},
	}
}
