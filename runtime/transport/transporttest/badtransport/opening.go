package badtransport

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/runtime/transport"
)

// renamed has every topic and group go by another name.
func renamed(rename func(string) string) bad {
	back := sync.Map{}
	topic := func(name string) string {
		to := rename(name)
		back.Store(to, name)
		return to
	}
	return bad{
		config: func(c *transport.ConsumerConfig) {
			topics := make([]string, len(c.Topics))
			for i, t := range c.Topics {
				topics[i] = topic(t)
			}
			c.Topics, c.Group = topics, rename(c.Group)
		},
		declare: func(tr transport.Transport, ctx context.Context, mode transport.Topology, ds []transport.Declaration) error {
			ds = append([]transport.Declaration(nil), ds...)
			for i := range ds {
				ds[i].Topic, ds[i].Group = topic(ds[i].Topic), rename(ds[i].Group)
			}
			return tr.Declare(ctx, mode, ds...)
		},
		publish: func(p transport.Producer, ctx context.Context, name string, msgs []*message.Message) error {
			return p.Publish(ctx, topic(name), msgs...)
		},
		open: each(func(d *transport.Delivery) {
			if name, ok := back.Load(d.Topic); ok {
				d.Topic = name.(string)
			}
		}),
	}
}

func opening() []Fault {
	illegal := regexp.MustCompile(`[^a-zA-Z0-9._-]+|^\.+$`)
	return []Fault{
		{
			Name: "takes names in lower case", Caught: "A4_names",
			New: stateful(func() bad { return renamed(strings.ToLower) }),
		},
		{
			Name: "mends illegal names", Caught: "A4_refused", Also: []string{"A7_honest_publish"}, // which asks for one
			New: stateful(func() bad {
				return renamed(func(name string) string {
					mended := illegal.ReplaceAllString(name, "_")
					return mended[:min(len(mended), transport.MaxName)]
				})
			}),
		},
		{
			Name: "crosses groups", Caught: "A5_groups", Also: []string{"A4_names", "A5_late_group", "A5_start", "G4_late_groups", "I3_frozen", "I8_half_open", "SPI_depth", "SPI_verify"}, // which have several
			New: stateless(bad{
				config: func(c *transport.ConsumerConfig) {
					if transport.CheckName("group", c.Group) == nil {
						c.Group = "everybody"
					}
				},
				declare: func(tr transport.Transport, ctx context.Context, mode transport.Topology, ds []transport.Declaration) error {
					ds = append([]transport.Declaration(nil), ds...)
					for i := range ds {
						if transport.CheckName("group", ds[i].Group) == nil {
							ds[i].Group = "everybody"
						}
					}
					return tr.Declare(ctx, mode, ds...)
				},
			}),
		},
		{
			Name: "begins at the end", Caught: "A5_late_group", Also: []string{"A7_honest_publish", "E4_dead_letter_kept", "G4_late_groups"}, // which read so
			New: stateless(bad{config: func(c *transport.ConsumerConfig) { c.Start = transport.StartLatest }}),
		},
		{
			Name: "begins at the beginning", Caught: "A5_start",
			New: stateless(bad{config: func(c *transport.ConsumerConfig) { c.Start = transport.StartEarliest }}),
		},
		{
			Name: "reads one topic of several", Caught: "A5_topics",
			New: stateless(bad{config: func(c *transport.ConsumerConfig) { c.Topics = c.Topics[:min(len(c.Topics), 1)] }}),
		},
		{
			Name: "makes up what is not said", Caught: "SPI_incomplete",
			New: stateless(bad{config: func(c *transport.ConsumerConfig) {
				if c.Group == "" || len(c.Topics) == 0 {
					c.Topics, c.Group = []string{"default"}, "default"
				}
			}}),
		},
		{
			Name: "forgets when it is closed", Caught: "I1_reopen",
			New: stateful(func() bad {
				var forgotten atomic.Bool
				return bad{
					close: func() { forgotten.Store(true) },
					open: func(c transport.Consumer, _ transport.ConsumerConfig) transport.Consumer {
						return &consumer{Consumer: c, receive: func(ctx context.Context, limit int, maxBytes int64) ([]*transport.Delivery, error) {
							if forgotten.Load() {
								<-ctx.Done()
							}
							return c.Receive(ctx, limit, maxBytes)
						}}
					},
				}
			}),
		},
		{
			Name: "leaves something running", Caught: "H5_no_leaks",
			New: stateless(bad{open: func(c transport.Consumer, _ transport.ConsumerConfig) transport.Consumer {
				go func() { <-time.After(time.Hour) }()
				return c
			}}),
		},
		{
			Name: "can be closed once", Caught: "SPI_close",
			New: stateless(bad{open: func(c transport.Consumer, _ transport.ConsumerConfig) transport.Consumer {
				var closed bool
				return &consumer{Consumer: c, close: func(ctx context.Context) error {
					if closed {
						return errors.New("closed before")
					}
					closed = true
					return c.Close(ctx)
				}}
			}}),
		},
		{
			Name: "closes in its own time", Caught: "SPI_close_in_time",
			New: stateless(bad{open: func(c transport.Consumer, _ transport.ConsumerConfig) transport.Consumer {
				return &consumer{Consumer: c, close: func(ctx context.Context) error {
					if ctx.Err() != nil {
						<-time.After(time.Hour)
					}
					return c.Close(ctx)
				}}
			}}),
		},
		{
			Name: "declares once", Caught: "SPI_declare",
			New: stateful(func() bad {
				var there sync.Map
				return bad{declare: func(tr transport.Transport, ctx context.Context, mode transport.Topology, ds []transport.Declaration) error {
					for _, d := range ds {
						if _, twice := there.LoadOrStore([2]string{d.Topic, d.Group}, true); twice && mode == transport.TopologyDeclare {
							return errors.New("topic exists")
						}
					}
					return tr.Declare(ctx, mode, ds...)
				}}
			}),
		},
		{
			Name: "makes what it is to verify", Caught: "SPI_verify", Also: []string{"SPI_off"}, // which asks by it what is there
			New: stateless(bad{declare: func(tr transport.Transport, ctx context.Context, mode transport.Topology, ds []transport.Declaration) error {
				if mode == transport.TopologyVerify {
					mode = transport.TopologyDeclare
				}
				return tr.Declare(ctx, mode, ds...)
			}}),
		},
		{
			Name: "makes what it is to leave alone", Caught: "SPI_off",
			New: stateless(bad{declare: func(tr transport.Transport, ctx context.Context, mode transport.Topology, ds []transport.Declaration) error {
				if mode == transport.TopologyOff {
					mode = transport.TopologyDeclare
				}
				return tr.Declare(ctx, mode, ds...)
			}}),
		},
		{
			Name: "counts what is delayed as ready", Caught: "SPI_depth",
			New: stateless(bad{depth: func(d transport.Depth) transport.Depth {
				d.Ready, d.Delayed = d.Ready+d.Delayed, 0
				return d
			}}),
		},
	}
}
