package main

import (
	"errors"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/leat-io/leat/benchmarks/harness"
)

// rawPrefetch is how many deliveries the raw client holds.
const rawPrefetch = 256

// rawRabbit is so many goroutines on one channel, which ack each message.
func rawRabbit(kind string, goroutines int, handle func(*message.Message) error) func(*harness.Meter, int) error {
	return func(m *harness.Meter, n int) error {
		return inQueue(kind, twice*n, func(name string) error {
			return inRabbit(func(ch *amqp091.Channel) error { return ackEach(newCount(m, n, twice), ch, name, goroutines, handle) })
		})
	}
}

func ackEach(c *count, ch *amqp091.Channel, queue string, goroutines int, handle func(*message.Message) error) error {
	if err := ch.Qos(rawPrefetch, 0, false); err != nil {
		return err
	}
	deliveries, err := ch.Consume(queue, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	errs := make([]error, goroutines)
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for {
				select {
				case d, open := <-deliveries:
					if !open {
						return
					}
					id, _ := d.Headers[watermillID].(string)
					if errs[g] = errors.Join(handle(&message.Message{UUID: id, Payload: d.Body}), d.Ack(false)); errs[g] != nil {
						return
					}
					c.add(1)
				case <-c.reached:
					return
				}
			}
		})
	}
	wg.Wait()
	err = ch.Close() // a round trip: the acks are there
	c.settled()
	return errors.Join(err, errors.Join(errs...))
}

func rawRabbitPublish(kind string) func(*harness.Meter, int) error {
	return func(m *harness.Meter, n int) error {
		return inQueue(kind, 1, func(name string) error {
			return inRabbit(func(ch *amqp091.Channel) error {
				msgs := kibibytes(0, n)
				m.Start()
				err := publishRabbit(ch, "", name, msgs)
				m.Stop()
				return err
			})
		})
	}
}
