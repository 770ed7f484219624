package kafka

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/leat-io/leat/runtime/transport"
)

// Depth counts what lies between a group's position and the end of each
// partition, without what is done ahead of the position. Markers of
// transactions count until they are passed.
func (t *Transport) Depth(ctx context.Context, topic, group string) (transport.Depth, error) {
	wrong := func(err error) (transport.Depth, error) {
		return transport.Depth{}, refuse(fmt.Errorf("depth of group %q in topic %q: %w", group, topic, err))
	}
	adm, err := t.admin()
	if err != nil {
		return wrong(err)
	}
	at, err := positions(ctx, adm, topic, group)
	if err != nil {
		return wrong(err)
	}
	e, err := t.extent(ctx, topic)
	if err != nil {
		return wrong(err)
	}
	return e.depth(at[topic]), nil
}

// extent is what the partitions of a topic hold.
type extent struct {
	id           kadm.TopicID
	starts, ends map[int32]kadm.ListedOffset
}

// extent asks for it.
func (t *Transport) extent(ctx context.Context, topic string) (extent, error) {
	adm, err := t.admin()
	if err != nil {
		return extent{}, err
	}
	detail, err := t.describe(ctx, topic)
	if err != nil {
		return extent{}, err
	}
	starts, err := adm.ListStartOffsets(ctx, topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return extent{}, err
	}
	list := adm.ListEndOffsets
	if t.o.Isolation == readCommitted {
		list = adm.ListCommittedOffsets
	}
	ends, err := list(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	return extent{detail.ID, starts[topic], ends[topic]}, err
}

// depth is what lies behind these positions; without one, all of it.
func (e extent) depth(at map[int32]kadm.OffsetResponse) transport.Depth {
	var d transport.Depth
	for part, end := range e.ends {
		pos := at[part]
		from := max(pos.At, e.starts[part].Offset)
		waits := end.Offset - from
		if a := decodeAhead(pos.Metadata); a.fits(e.id, pos.At) {
			waits -= a.done(from, end.Offset)
		}
		d.Ready += max(0, waits)
	}
	return d
}
