package kafka

import (
	"context"
	"net"

	"github.com/leat-io/leat/runtime/transport"
)

// Kill leaves a consumer as a killed process does: nothing of it runs any
// more, and the group is not told.
func Kill(c transport.Consumer) (cleanup func()) {
	k := c.(*consumer) //nolint:forcetypeassert // it is ours
	k.dead.Store(true)
	k.end()
	return k.cl.Close
}

// Through has all connections of a transport go to one address.
func Through(t *Transport, address string) {
	t.dial = func(ctx context.Context, network, _ string) (net.Conn, error) { return t.o.dial(ctx, network, address) }
}

// DoneAhead reads the metadata of a commit.
func DoneAhead(metadata string) (done func(offset int64) bool, topic [16]byte, top int64) {
	a := decodeAhead(metadata)
	if a == nil {
		return func(int64) bool { return false }, topic, 0
	}
	return a.has, a.topic, a.top
}

// Counts are what a consumer has counted: settlements that came when their
// partition had gone, deliveries that were done already, offsets that were
// gone before they were read.
func Counts(c transport.Consumer) (late, outOfRange uint64) {
	k := c.(*consumer) //nolint:forcetypeassert // it is ours
	return k.late.Load(), k.outOfRange.Load()
}

// Inflated is what compressed batches have grown to since the last poll.
func Inflated(c transport.Consumer) int64 {
	return c.(*consumer).bombs.grown.Load() //nolint:forcetypeassert // it is ours
}

// PollOnce has a consumer take in what its client has, as if that had grown to
// so much; it tells whether there was nothing.
func PollOnce(ctx context.Context, c transport.Consumer, inflated int64) (idle bool, err error) {
	k := c.(*consumer) //nolint:forcetypeassert // it is ours
	k.bombs.grown.Store(inflated)
	return k.poll(ctx, false)
}
