package amqp

import (
	"context"
	"regexp"
	"strconv"

	"github.com/rabbitmq/amqp091-go"

	"github.com/leat-io/leat/runtime/transport"
)

// fate is what becomes of a message that is not confirmed.
type fate int

const (
	failed  fate = iota // a later try may help
	guilty              // no later try can
	suspect             // it, or another, has ended the channel
)

var tooLarge = regexp.MustCompile(`message size (\d+) is larger`)

// condemns tells whether a channel was closed for a message that no channel
// will take. The broker does not say which.
func condemns(closed *amqp091.Error) bool {
	return closed != nil && closed.Server && closed.Code == amqp091.PreconditionFailed && !timedOut(closed)
}

// blame decides upon one of those that wait when the channel is closed.
func blame(closed *amqp091.Error, s *sent, waiting int) fate {
	switch {
	case closed != nil && closed.Server && closed.Code == amqp091.AccessRefused:
		return guilty
	case !condemns(closed):
		return failed
	}
	m := tooLarge.FindStringSubmatch(closed.Reason)
	if waiting == 1 || m != nil && m[1] == strconv.Itoa(s.size) {
		return guilty
	}
	return suspect
}

// trials is how many channels a connection has at once for suspects.
const trials = 16

// apart publishes suspects one by one, each alone on its channel, so that the
// guilty one is found and the others are confirmed. What the broker had taken
// before it closed the channel is in its queues twice then.
func (l *line) apart(ctx context.Context, suspects []item) (failures []transport.PublishFailure, err error) {
	if len(suspects) == 0 {
		return nil, nil
	}
	select {
	case l.conn.trials <- struct{}{}:
		defer func() { <-l.conn.trials }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	var alone *line
	for i := range suspects {
		if alone == nil || alone.failure() != nil {
			if alone, err = openLine(ctx, l.conn, l.mandatory); err != nil {
				return nil, err
			}
		}
		more, err := alone.publish(ctx, suspects[i:i+1])
		if err != nil {
			more = []transport.PublishFailure{{Index: suspects[i].index, Err: err}}
		}
		failures = append(failures, more...)
	}
	go alone.close()
	return failures, nil
}
