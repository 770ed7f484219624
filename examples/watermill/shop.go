package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sort"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/runtime/pubsub"
	"github.com/leat-io/leat/runtime/transport/sql"
)

// shop publishes orders and waits for their payments. But for two lines, which
// say where its Pub/Sub comes from, there is nothing of Leat in it.
func shop(ctx context.Context, path string) error {
	broker, err := sql.OpenSQLite(sql.Options{Path: path})
	if err != nil {
		return err
	}
	defer broker.Close(ctx)
	pub, sub := pubsub.NewPublisher(broker), pubsub.NewSubscriber(broker, "shop")

	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 10 * time.Second}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	paid := payments{left: 3}
	router.AddConsumerHandler("paid", "payments.charged", sub, func(m *message.Message) error {
		var p Payment
		if err := json.Unmarshal(m.Payload, &p); err != nil {
			return err
		}
		if paid.add(p) {
			go router.Close() // and Run returns
		}
		return nil
	})

	ended := make(chan error, 1)
	go func() { ended <- router.Run(ctx) }()
	<-router.Running()
	for i := range 3 {
		body, err := json.Marshal(Order{ID: fmt.Sprint(i + 1), Total: int64(100 * (i + 1))})
		if err != nil {
			return err
		}
		m := message.NewMessageWithContext(ctx, watermill.NewUUID(), body)
		if err := pub.Publish("orders.placed", m); err != nil { //nolint:contextcheck // it is in the message
			return err
		}
	}
	err = <-ended
	for _, line := range paid.lines {
		fmt.Println(line)
	}
	return err
}

// payments are those that have come. The same may come twice.
type payments struct {
	mu    sync.Mutex
	lines []string
	left  int
}

// add tells whether all are there now.
func (p *payments) add(one Payment) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	line := fmt.Sprintf("order %s: paid %d", one.Order, one.Amount)
	at := sort.SearchStrings(p.lines, line)
	if at < len(p.lines) && p.lines[at] == line {
		return false
	}
	p.lines = append(p.lines, line)
	sort.Strings(p.lines)
	p.left--
	return p.left == 0
}
