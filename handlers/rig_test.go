package handlers_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/leat-io/leat/runtime/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// attempt is what the engine gives a handler.
func attempt(t *testing.T, body []byte) *transport.Attempt {
	t.Helper()
	a := transport.NewAssignment(t.Context(), "orders", 2)
	t.Cleanup(a.Revoke)
	d := &transport.Delivery{
		ID: "id-1", Payload: body, Key: "k", Topic: "orders", Partition: 2, Offset: 7, Enqueued: time.Unix(1, 0),
		Headers:    transport.HeadersOf(map[string]string{transport.KeyHeader: "k", "trace": "abc"}),
		Assignment: a,
	}
	return transport.NewAttempt(d, "charge", "payments.charge", 3, time.Unix(2, 0))
}

// run is one run of a handler: what it returned and what it left to send.
func run(t *testing.T, h message.HandlerFunc, body []byte) ([]*message.Message, []transport.Output, error) {
	t.Helper()
	a := attempt(t, body)
	returned, err := h(a.Message())
	outputs, _, _ := a.End()
	return returned, outputs, err
}

func decide(t *testing.T, err error) transport.Decision {
	t.Helper()
	require.Error(t, err)
	policy, bad := transport.NewRetryPolicy(transport.Backoff{Jitter: -1})
	require.NoError(t, bad)
	return policy.Decide(err, 1)
}
