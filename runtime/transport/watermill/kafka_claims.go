package watermill

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/runtime/transport"
)

// rebalanceDrain is how long a partition that is taken away waits for what runs.
const rebalanceDrain = 5 * time.Second

// claims stands between sarama and the Subscriber, where that lets somebody
// wrap its handler. The Subscriber takes no notice when a group session ends: it
// waits for an answer to what it has handed out, keeps on resending what is
// nacked, and holds up the rebalance of the whole group. Here the engine is
// told, and the Subscriber gets its answer.
type claims struct {
	of       *consumer
	inFlight int // messages of a partition
}

var _ kafka.SaramaTracer = (*claims)(nil)

// WrapConsumerGroupHandler is where the sessions are.
func (t *claims) WrapConsumerGroupHandler(h sarama.ConsumerGroupHandler) sarama.ConsumerGroupHandler {
	return &claimHandler{ConsumerGroupHandler: h, c: t.of, inFlight: t.inFlight}
}

// WrapConsumer is of readers without a group, and wraps nothing.
func (*claims) WrapConsumer(c sarama.Consumer) sarama.Consumer { return c }

// WrapPartitionConsumer wraps nothing.
func (*claims) WrapPartitionConsumer(pc sarama.PartitionConsumer) sarama.PartitionConsumer { return pc }

// WrapSyncProducer wraps nothing.
func (*claims) WrapSyncProducer(_ *sarama.Config, p sarama.SyncProducer) sarama.SyncProducer {
	return p
}

// partition is the place of a message; 0 where there are no claims.
func (t *claims) partition(m *message.Message) int32 {
	if t == nil {
		return 0
	}
	p, _ := kafka.MessagePartitionFromCtx(m.Context())
	return p
}

type claimHandler struct {
	sarama.ConsumerGroupHandler

	c        *consumer
	inFlight int
}

// Setup begins a group session, of which there is one for each topic.
func (h *claimHandler) Setup(sess sarama.ConsumerGroupSession) error {
	h.c.inGroup(1)
	return h.ConsumerGroupHandler.Setup(sess)
}

// Cleanup ends it: the group is shared out anew.
func (h *claimHandler) Cleanup(sess sarama.ConsumerGroupSession) error {
	h.c.inGroup(-1)
	return h.ConsumerGroupHandler.Cleanup(sess)
}

func (c *consumer) inGroup(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessions += n
	c.turned = time.Now()
}

// LeftOut is for the status.
func (c *consumer) LeftOut() (why string, since time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.src.claims == nil || c.sessions >= len(c.cfg.Topics) {
		return "", time.Time{}
	}
	return "the group has not let it in yet, or is being shared out anew", c.turned
}

// ConsumeClaim is one spell of owning a partition. It ends with the session:
// what runs is finished and acked still, as far as rebalanceDrain lets it.
func (h *claimHandler) ConsumeClaim(sess sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	marks := &marks{ConsumerGroupSession: sess, claim: claim, window: transport.NewWindow(claim.InitialOffset(), h.c.cfg.Span)}
	sp := h.c.begin(place{claim.Topic(), claim.Partition()})
	sp.mark = marks.settle
	over, left := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(left)
		h.c.follow(sess.Context(), sp, over)
	}()
	shares := &shares{ConsumerGroupClaim: claim, records: make(chan *sarama.ConsumerMessage)}
	errs := make(chan error, h.inFlight)
	for range h.inFlight {
		go func() { errs <- h.ConsumerGroupHandler.ConsumeClaim(marks, shares) }()
	}
	go func() {
		defer close(shares.records)
		for r := range claim.Messages() {
			marks.add(r.Offset)
			h.c.expect(sp, r.Offset)
			select {
			case shares.records <- r:
			case <-over:
				return
			case <-sess.Context().Done():
				return
			}
		}
	}()
	var err error
	for range h.inFlight {
		err = errors.Join(err, <-errs)
	}
	close(over)
	<-left
	h.c.letGo(sp)
	return err
}

// shares is a claim that several readers take from.
type shares struct {
	sarama.ConsumerGroupClaim

	records chan *sarama.ConsumerMessage
}

// Messages gives what is shared.
func (s *shares) Messages() <-chan *sarama.ConsumerMessage { return s.records }

// marks is a session whose offset of one partition moves only over what is
// finished by all readers.
type marks struct {
	sarama.ConsumerGroupSession

	claim  sarama.ConsumerGroupClaim
	mu     sync.Mutex
	window *transport.Window
}

func (m *marks) add(offset int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.window.Add(offset)
}

// MarkMessage is what the Subscriber calls for an ack.
func (m *marks) MarkMessage(r *sarama.ConsumerMessage, _ string) { m.settle(r.Offset) }

func (m *marks) settle(offset int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.window.Mark()
	if m.window.Settle(offset) && m.window.Mark() > before {
		m.MarkOffset(m.claim.Topic(), m.claim.Partition(), m.window.Mark(), "")
	}
}

// follow ends a spell with its session.
func (c *consumer) follow(session context.Context, sp *spell, over <-chan struct{}) {
	select {
	case <-session.Done():
	case <-over:
		return
	}
	c.leaveSpell(sp)
	limit := time.NewTimer(rebalanceDrain)
	defer limit.Stop()
	select {
	case <-sp.idle:
	case <-limit.C:
	case <-over: // the Subscriber is closed
	}
	c.letGo(sp)
}

// expect notes that the readers of a partition are about to hand out an offset:
// they do so in any order, and Receive gives them in the partition's.
func (c *consumer) expect(sp *spell, offset int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	sp.expected = append(sp.expected, offset)
}

// readKafka adds coordinates, key and time to a delivery.
func readKafka(m *message.Message, d *transport.Delivery) {
	ctx := m.Context()
	d.Offset, _ = kafka.MessagePartitionOffsetFromCtx(ctx)
	d.Enqueued, _ = kafka.MessageTimestampFromCtx(ctx)
	d.Headers = headersOf(m.Metadata)
	d.Session = 0
	if d.ID == "" {
		d.ID = d.Coordinates()
	}
}
