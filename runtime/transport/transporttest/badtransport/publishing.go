package badtransport

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/runtime/transport"
)

func publishing() []Fault {
	return []Fault{
		{
			Name: "loses one in a thousand", Caught: "A1_no_loss", Also: []string{"G4_late_order", "G4_late_under_load"}, // which have as many
			New: stateful(func() bad {
				var n atomic.Int64
				return bad{publish: func(p transport.Producer, ctx context.Context, topic string, msgs []*message.Message) error {
					var kept []*message.Message
					for _, m := range msgs {
						if n.Add(1)%1000 != 0 {
							kept = append(kept, m)
						}
					}
					return p.Publish(ctx, topic, kept...)
				}}
			}),
		},
		{
			Name: "keeps its errors to itself", Caught: "A7_honest_publish",
			Also: []string{"A7_too_large", "C6_resets", "I3_frozen", "I4_cut", "I8_half_open", "I10_denied"},
			New: stateless(bad{publish: func(p transport.Producer, ctx context.Context, topic string, msgs []*message.Message) error {
				_ = p.Publish(ctx, topic, msgs...)
				return nil
			}}),
		},
		{
			Name: "keeps the publisher's bytes", Caught: "A2_fidelity", Also: []string{"A7_given_up"},
			New: stateful(func() bad {
				var sent sync.Map
				return bad{
					publish: func(p transport.Producer, ctx context.Context, topic string, msgs []*message.Message) error {
						for _, m := range msgs {
							sent.Store(m.UUID, m)
						}
						return p.Publish(ctx, topic, msgs...)
					},
					open: each(func(d *transport.Delivery) {
						if m, ok := sent.Load(d.ID); ok {
							d.Payload = m.(*message.Message).Payload
						}
					}),
				}
			}),
		},
		{
			Name: "publishes from what its caller has back", Caught: "A7_given_up",
			New: stateless(bad{publish: func(p transport.Producer, ctx context.Context, topic string, msgs []*message.Message) error {
				end, bounded := ctx.Deadline()
				if !bounded || time.Until(end) > 100*time.Millisecond {
					return p.Publish(ctx, topic, msgs...)
				}
				<-ctx.Done()
				late := message.NewMessage(msgs[0].UUID, []byte("what its caller has made of it")) // to read that would be a race
				time.AfterFunc(time.Millisecond, func() { _ = p.Publish(context.WithoutCancel(ctx), topic, late) })
				return ctx.Err()
			}}),
		},
		{
			Name: "drops what no group reads", Caught: "E4_dead_letter_kept", Also: []string{"A7_honest_publish"},
			New: stateful(func() bad {
				var read sync.Map
				return bad{
					declare: func(tr transport.Transport, ctx context.Context, mode transport.Topology, ds []transport.Declaration) error {
						for _, d := range ds {
							if d.Group != "" {
								read.Store(d.Topic, true)
							}
						}
						return tr.Declare(ctx, mode, ds...)
					},
					config: func(c *transport.ConsumerConfig) {
						for _, topic := range c.Topics {
							read.Store(topic, true)
						}
					},
					publish: func(p transport.Producer, ctx context.Context, topic string, msgs []*message.Message) error {
						if _, ok := read.Load(topic); !ok && !strings.Contains(topic, " ") {
							return nil
						}
						return p.Publish(ctx, topic, msgs...)
					},
				}
			}),
		},
	}
}
