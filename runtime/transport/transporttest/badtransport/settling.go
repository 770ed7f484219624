package badtransport

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/leat-io/leat/runtime/transport"
)

func verdicts(v transport.Verdict, ds ...*transport.Delivery) []transport.Settlement {
	batch := make([]transport.Settlement, len(ds))
	for i, d := range ds {
		batch[i] = transport.Settlement{Delivery: d, Verdict: v}
	}
	return batch
}

// as has settlements of one verdict told as something else.
func as(v transport.Verdict, change func(*transport.Settlement)) func(transport.Consumer, transport.ConsumerConfig) transport.Consumer {
	return told(func(batch []transport.Settlement) []transport.Settlement {
		batch = slices.Clone(batch)
		for i := range batch {
			if batch[i].Verdict == v {
				change(&batch[i])
			}
		}
		return batch
	})
}

func settling() []Fault {
	return []Fault{
		{
			Name: "acks early", Caught: "C2_killed", Broad: true,
			New: stateless(bad{open: func(c transport.Consumer, _ transport.ConsumerConfig) transport.Consumer {
				return &consumer{
					Consumer: c,
					receive: func(ctx context.Context, limit int, maxBytes int64) ([]*transport.Delivery, error) {
						ds, err := c.Receive(ctx, limit, maxBytes)
						return ds, errors.Join(err, c.Settle(context.WithoutCancel(ctx), verdicts(transport.Ack, ds...)))
					},
				}
			}}),
		},
		{
			Name: "loses on close", Caught: "C3_partial_batch", Broad: true,
			New: stateless(bad{open: func(c transport.Consumer, _ transport.ConsumerConfig) transport.Consumer {
				var held []*transport.Delivery
				return &consumer{
					Consumer: c,
					receive: func(ctx context.Context, limit int, maxBytes int64) ([]*transport.Delivery, error) {
						ds, err := c.Receive(ctx, limit, maxBytes)
						held = append(held, ds...)
						return ds, err
					},
					close: func(ctx context.Context) error {
						return errors.Join(c.Settle(ctx, verdicts(transport.Ack, held...)), c.Close(ctx))
					},
				}
			}}),
		},
		{
			Name: "forgets attempts", Caught: "C1_delay", Also: []string{"C1_attempts_after_kill", "C1_record", "C1_release"},
			New: stateless(bad{open: each(func(d *transport.Delivery) { d.Attempts, d.LastError = 0, "" })}),
		},
		{
			Name: "forgets attempts in a crash", Caught: "C1_attempts_after_kill",
			New: stateful(func() bad {
				var saved sync.Map
				return bad{open: func(c transport.Consumer, _ transport.ConsumerConfig) transport.Consumer {
					var known sync.Map
					return &consumer{
						Consumer: c,
						receive: func(ctx context.Context, limit int, maxBytes int64) ([]*transport.Delivery, error) {
							ds, err := c.Receive(ctx, limit, maxBytes)
							for _, d := range ds {
								_, here := known.Load(d.ID)
								if _, before := saved.Load(d.ID); !here && !before {
									d.Attempts, d.LastError = 0, ""
								}
							}
							return ds, err
						},
						settle: func(ctx context.Context, batch []transport.Settlement) error {
							for _, st := range batch {
								known.Store(st.Delivery.ID, true)
							}
							return c.Settle(ctx, batch)
						},
						close: func(ctx context.Context) error {
							known.Range(func(id, _ any) bool { saved.Store(id, true); return true })
							return c.Close(ctx)
						},
					}
				}}
			}),
		},
		{
			Name: "spends an attempt on a release", Caught: "C1_release",
			New: stateless(bad{open: as(transport.Release, func(st *transport.Settlement) {
				st.Verdict, st.Attempts = transport.Delay, st.Delivery.Attempts+1
			})}),
		},
		{
			Name: "puts releases at the end", Caught: "B2_release_order", Also: []string{"C1_release"},
			New: stateless(bad{open: as(transport.Release, func(st *transport.Settlement) {
				st.Verdict, st.After, st.Attempts, st.LastError = transport.Delay, time.Millisecond, st.Delivery.Attempts, st.Delivery.LastError
			})}),
		},
		{
			Name: "ends what is recorded", Caught: "C1_record",
			New: stateless(bad{open: as(transport.Record, func(st *transport.Settlement) { st.Verdict = transport.Delay })}),
		},
		{
			Name: "delays by half", Caught: "D2_never_early",
			New: stateless(bad{open: as(transport.Delay, func(st *transport.Settlement) { st.After /= 2 })}),
		},
		{
			Name: "complains of a second ack", Caught: "C7_settle_twice", Also: []string{"C7_ack_after_return"},
			New: stateless(bad{open: func(c transport.Consumer, _ transport.ConsumerConfig) transport.Consumer {
				var settled sync.Map
				return &consumer{Consumer: c, settle: func(ctx context.Context, batch []transport.Settlement) error {
					for _, st := range batch {
						if st.Verdict == transport.Record {
							continue
						}
						if _, twice := settled.LoadOrStore(st.Delivery, true); twice && st.Verdict == transport.Ack {
							return errors.New("unknown delivery tag")
						}
					}
					return c.Settle(ctx, batch)
				}}
			}}),
		},
		{
			Name: "acks what it has given back", Caught: "C7_ack_after_return",
			New: stateless(bad{open: func(c transport.Consumer, _ transport.ConsumerConfig) transport.Consumer {
				var returned, doomed sync.Map
				return &consumer{
					Consumer: c,
					settle: func(ctx context.Context, batch []transport.Settlement) error {
						for _, st := range batch {
							switch st.Verdict {
							case transport.Release, transport.Delay:
								returned.Store(st.Delivery, true)
							case transport.Ack:
								if _, ok := returned.Load(st.Delivery); ok {
									doomed.Store(st.Delivery.ID, true)
								}
							case transport.Record:
							}
						}
						return c.Settle(ctx, batch)
					},
					receive: func(ctx context.Context, limit int, maxBytes int64) ([]*transport.Delivery, error) {
						for {
							ds, err := c.Receive(ctx, limit, maxBytes)
							ds = slices.DeleteFunc(ds, func(d *transport.Delivery) bool {
								_, gone := doomed.Load(d.ID)
								return gone
							})
							if len(ds) > 0 || err != nil {
								return ds, err
							}
						}
					},
				}
			}}),
		},
		{
			Name: "swallows what it does not know", Caught: "SPI_unsupported",
			New: stateless(bad{open: told(func(batch []transport.Settlement) []transport.Settlement {
				return slices.DeleteFunc(slices.Clone(batch), func(st transport.Settlement) bool { return st.Verdict > transport.Record })
			})}),
		},
	}
}
