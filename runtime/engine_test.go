package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime"
	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/memory"
)

func TestSmoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker(memory.Options{})
		tr := b.Transport()
		r := runtime.NewRouter(runtime.Options{})
		var n atomic.Int64
		var mu sync.Mutex
		seen := map[string]int{}
		require.NoError(t, r.Consume("c", tr, "in", func(m *message.Message) ([]*message.Message, error) {
			n.Add(1)
			mu.Lock()
			seen[m.UUID]++
			k := seen[m.UUID]
			mu.Unlock()
			if m.UUID == "m7" && k < 3 {
				return nil, errors.New("boom")
			}
			time.Sleep(time.Millisecond)
			return nil, nil
		}, transport.Policy{Group: "g"}))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		<-r.Ready()
		p, err := tr.OpenProducer(ctx)
		require.NoError(t, err)
		for i := range 1000 {
			m := message.NewMessage(fmt.Sprintf("m%d", i), []byte("x"))
			m.Metadata.Set(transport.KeyHeader, fmt.Sprint(i%10))
			require.NoError(t, p.Publish(ctx, "in", m))
		}
		require.NoError(t, r.WaitIdle(ctx, time.Second))
		st := r.Status()[0]
		require.Equal(t, int64(1000), st.Count(transport.Handled))
		require.Equal(t, int64(2), st.Count(transport.Retried))
		cancel()
		require.NoError(t, <-done)
		require.NoError(t, tr.Close(context.Background()))
	})
}
