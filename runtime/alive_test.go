package runtime_test

import (
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
)

// TestAliveIsNotAboutOthers: a handler, a broker, an output and a dead letter
// that hang are no reason to start the process anew.
func TestAliveIsNotAboutOthers(t *testing.T) {
	t.Parallel()
	hang, boom := errors.New("hangs"), errors.New("boom")
	tests := map[string]struct {
		fault memory.Fault
		slow  bool
		err   error
	}{
		"handlers": {slow: true},
		"failing":  {err: boom},
		"receive":  {fault: memory.Fault{Op: memory.OpReceive, Err: hang, Hang: true}},
		"settle":   {fault: memory.Fault{Op: memory.OpSettle, Err: hang, Hang: true}},
		"outage":   {fault: memory.Fault{Op: memory.OpReceive, Err: errors.New("no route to host")}},
		"output":   {fault: memory.Fault{Op: memory.OpPublish, Topic: "out", Err: hang, Hang: true}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inMemory(t, memory.Options{}, func(w *world) {
				release := make(chan struct{})
				defer close(release)
				w.consume(func(*message.Message) ([]*message.Message, error) {
					if tc.slow {
						<-release
					}
					return []*message.Message{message.NewMessage("", nil)}, tc.err
				}, w.policy(func(p *transport.Policy) {
					p.PublishTo, p.Concurrency, p.Prefetch, p.Timeout = "out", 2, 4, 0
				}))
				if tc.fault.Op != 0 {
					defer w.broker.Inject(tc.fault)()
				}
				var msgs []*message.Message
				for i := range 20 {
					msgs = append(msgs, msg(string(rune('a'+i)), string(rune('a'+i%3)), ""))
				}
				w.publish("in", msgs...)
				for range 60 {
					time.Sleep(time.Minute / 2)
					require.NoError(w, w.router.Alive(10*time.Second))
				}
			})
		})
	}
}
