// Package dir is a broker made of a directory, for processes of one machine:
// a transport written from docs/writing-a-transport.md alone.
//
//	DIR/orders/0/00000000000000000007   a message
//	DIR/orders/0/end                    one above the last that is confirmed
//	DIR/orders/0/lock                   held by who publishes
//	DIR/orders/groups/charge/0.json     what the group has done with partition 0
//	DIR/orders/groups/charge/0.lock     held by the member that owns it
//	DIR/orders/groups/charge/seat0.lock held by a member, so that others can count it
//
// All locks are flock's: they end with the process, however that ends.
// What is confirmed outlives the process, but not a power cut: nothing is
// synced to the disk. Nor is anything ever deleted; see the README.
package dir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"
	"time"

	"github.com/leat-io/leat/runtime/transport"
)

// Options of the kind dir. Zero fields have the defaults named.
type Options struct {
	// Path of the directory; it is made with the first topic. Required.
	Path string `yaml:"path" required:"true"`
	// Partitions of a topic that is made. It bounds how many instances share a
	// group, and stays as it is from then on. Default: 4.
	Partitions int `yaml:"partitions" min:"0" max:"64"`
	// Poll is the pause between two looks into the directory. Default: 50ms.
	Poll time.Duration `yaml:"poll" min:"0"`
	// RebalanceDrain is how long a partition that moves to another instance
	// waits for what is running. Default: 5s.
	RebalanceDrain time.Duration `yaml:"rebalance_drain" min:"0"`
}

// Transport is a directory.
type Transport struct {
	o       Options
	closed  atomic.Bool
	writing chan struct{} // has room for the one that publishes: waiting for a file's lock is dear
}

var _ transport.Transport = (*Transport)(nil)

// New touches nothing: the directory is looked at when it is first needed.
func New(o Options) *Transport {
	if o.Partitions <= 0 {
		o.Partitions = 4
	}
	if o.Poll <= 0 {
		o.Poll = 50 * time.Millisecond
	}
	if o.RebalanceDrain <= 0 {
		o.RebalanceDrain = 5 * time.Second
	}
	return &Transport{o: o, writing: make(chan struct{}, 1)}
}

// Kind is "dir".
func (t *Transport) Kind() string { return "dir" }

// Capabilities of a directory: all but transactions, browsing and replay.
func (t *Transport) Capabilities() transport.Capabilities {
	return transport.Capabilities{
		KeyOrder:          transport.ScopeGroup,
		Attempts:          transport.KeepDurable,
		DurableDelay:      true,
		StableCoordinates: true,
		ReleaseInOrder:    true,
		ByteWindow:        true,
		History:           true,
		Depth:             true,
		Browse:            transport.BrowseNone,
		Durable:           true,
		MaxNameLength:     transport.MaxName,
	}
}

// Declare makes topics and groups, or looks whether they are there.
func (t *Transport) Declare(_ context.Context, mode transport.Topology, ds ...transport.Declaration) error {
	for _, d := range ds {
		if err := t.declare(mode, d); err != nil {
			return refuse(fmt.Errorf("declare %s: %w", label(d), err))
		}
	}
	return nil
}

func (t *Transport) declare(mode transport.Topology, d transport.Declaration) error {
	err := transport.CheckName("topic", d.Topic)
	if err == nil && d.Group != "" {
		err = transport.CheckName("group", d.Group)
	}
	switch {
	case t.closed.Load():
		return transport.ErrClosed
	case err != nil:
		return transport.Refuse(err)
	case mode == transport.TopologyOff:
		return nil
	case mode == transport.TopologyVerify:
		tp, err := t.topic(d.Topic)
		if err == nil && d.Group != "" {
			_, err = tp.group(d.Group)
		}
		if errors.Is(err, errMissing) {
			return transport.Refuse(err)
		}
		return err
	}
	tp, err := t.makeTopic(d.Topic)
	if err != nil || d.Group == "" {
		return err
	}
	return tp.makeGroup(d.Group, d.Start)
}

func label(d transport.Declaration) string {
	if d.Group == "" {
		return fmt.Sprintf("topic %q", d.Topic)
	}
	return fmt.Sprintf("group %q of topic %q", d.Group, d.Topic)
}

// refuse marks what a later try will not mend.
func refuse(err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, errors.ErrUnsupported) {
		return transport.Refuse(err)
	}
	return err
}

// Depth counts what waits. What is held counts as ready: only its holder
// knows of it.
func (t *Transport) Depth(_ context.Context, topic, group string) (d transport.Depth, err error) {
	tp, err := t.topic(topic)
	if err != nil {
		return d, err
	}
	folder, err := tp.group(group)
	if err != nil {
		return d, err
	}
	for p := range tp.partitions {
		st, err := loadState(statePath(folder, p))
		if err != nil {
			return d, err
		}
		end, err := tp.end(p) // later than what is done, so that nothing is negative
		if err != nil {
			return d, err
		}
		delayed := st.delayed(time.Now())
		d.Delayed += delayed
		d.Ready += end - st.Done.count() - delayed
		if first := st.Done.next(0); first < end {
			m, err := tp.read(p, first)
			if err == nil && (d.Oldest.IsZero() || m.Enqueued.Before(d.Oldest)) {
				d.Oldest = m.Enqueued
			}
		}
	}
	return d, nil
}

// Close has nothing to give up: consumers and producers hold the files.
func (t *Transport) Close(context.Context) error {
	t.closed.Store(true)
	return nil
}
