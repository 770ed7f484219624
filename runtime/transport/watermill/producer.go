package watermill

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
)

type producer struct{ pub message.Publisher }

// Publish passes the messages on. A Publisher does not say which of them
// failed, so an error is about all.
func (p *producer) Publish(ctx context.Context, topic string, msgs ...*message.Message) error {
	_, err := await(ctx, func() (struct{}, error) { return struct{}{}, p.pub.Publish(topic, msgs...) }, nil)
	return err
}

func (p *producer) Close(ctx context.Context) error {
	_, err := await(ctx, func() (struct{}, error) { return struct{}{}, p.pub.Close() }, nil)
	return err
}
