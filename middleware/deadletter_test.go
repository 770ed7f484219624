package middleware_test

import (
	"context"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/middleware"
	"github.com/leat-io/leat/runtime/transport"
)

func TestDeadLetterMarksForTheEngine(t *testing.T) {
	t.Parallel()
	used := &transport.Exhausted{Attempts: 5, Err: errBoom}
	for name, c := range map[string]struct {
		err     error
		attempt int
		reason  string // empty: no mark
	}{
		"success":              {nil, 1, ""},
		"permanent":            {permanent{errBoom}, 1, transport.ReasonPermanent},
		"exhausted":            {used, 5, transport.ReasonExhausted},
		"from an outer link":   {errBoom, 5, transport.ReasonExhausted},
		"with attempts left":   {errBoom, 4, ""},
		"wait":                 {&transport.Wait{After: time.Second, Spent: true, Err: permanent{errBoom}}, 9, ""},
		"skip":                 {skipped{errBoom}, 9, ""},
		"already":              {transport.Already, 9, ""},
		"shutdown":             {transport.ErrShutdown, 9, ""},
		"revoked, wrapped too": {errors.Join(permanent{errBoom}, transport.ErrRevoked), 9, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := transport.DeadLetter{Mode: transport.DeadDrop}
			a := attempt(t, "1", c.attempt)
			h := middleware.DeadLetter(to, middleware.DeadLetterOptions{Retry: policy(t, transport.Backoff{})})(failing(c.err))
			_, err := h(a.Message())
			require.Equal(t, c.err, err, "the error passes")
			_, _, mark := a.End()
			if c.reason == "" {
				require.Nil(t, mark)
				return
			}
			require.Equal(t, &transport.DeadMark{Policy: to, Reason: c.reason, Err: c.err}, mark)
		})
	}
}

func TestDeadLetterDoesNotMarkWhatWasRevoked(t *testing.T) {
	t.Parallel()
	a := attempt(t, "1", 9)
	h := middleware.DeadLetter(transport.DeadLetter{}, middleware.DeadLetterOptions{})(func(*message.Message) ([]*message.Message, error) {
		a.Delivery().Assignment.Revoke()
		return nil, permanent{errBoom}
	})
	_, err := h(a.Message())
	require.Equal(t, permanent{errBoom}, err)
	_, _, mark := a.End()
	require.Nil(t, mark)
}

// C8, C15, E2: the copy is the message as it arrived, and says why it is there.
func TestDeadLetterInPlacePublishesWhatArrived(t *testing.T) {
	t.Parallel()
	for name, payload := range map[string]message.Payload{"some": message.Payload("abc"), "empty": {}, "nil": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				pub := &publisher{}
				p := policy(t, transport.Backoff{Attempts: 3, InitialInterval: time.Second, Jitter: -1})
				start := time.Now()
				h := chain(func(m *message.Message) ([]*message.Message, error) {
					clear(m.Payload)
					m.Payload = append(m.Payload, "changed"...)
					m.Metadata.Set("k", "other")
					m.UUID = "other"
					return nil, errBoom
				}, middleware.DeadLetter(transport.DeadLetter{Topic: "dead"}, middleware.DeadLetterOptions{Retry: p, Publisher: pub, Group: "g", Instance: "i"}),
					middleware.Retry(p))
				headers := message.Metadata{"k": "v", transport.KeyHeader: "key"}
				msg := message.NewMessageWithContext(t.Context(), "1", append(payload[:0:0], payload...))
				msg.Metadata = maps.Clone(headers)
				_, err := h(msg)
				require.NoError(t, err, "safe, so it can be acked")

				require.Equal(t, []string{"dead"}, pub.topics)
				dead := pub.msgs[0]
				require.Equal(t, "1", dead.UUID)
				require.Equal(t, payload, dead.Payload)
				for k, v := range headers {
					require.Equal(t, v, dead.Metadata[k])
				}
				for k, v := range map[string]string{
					transport.DeadReasonHeader:   transport.ReasonExhausted,
					transport.DeadErrorHeader:    "given up after 3 attempts: boom",
					transport.DeadGroupHeader:    "g",
					transport.DeadInstanceHeader: "i",
					transport.DeadAttemptsHeader: "3",
					transport.DeadFirstHeader:    start.UTC().Format(time.RFC3339Nano),
					transport.DeadLastHeader:     start.Add(3 * time.Second).UTC().Format(time.RFC3339Nano),
				} {
					require.Equal(t, v, dead.Metadata[k], k)
				}
				for k := range msg.Metadata {
					require.NotContains(t, k, "dead", "the message itself gets no dead-letter metadata")
					require.NotContains(t, k, "poisoned")
				}
				require.NoError(t, dead.Context().Err())
			})
		})
	}
}

func TestDeadLetterInPlaceKnowsTheAttemptsOfAPermanentError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pub := &publisher{}
		p := policy(t, transport.Backoff{})
		errs := []error{errBoom, errBoom, permanent{errBoom}}
		h := chain(func(*message.Message) ([]*message.Message, error) {
			err := errs[0]
			errs = errs[1:]
			return nil, err
		}, middleware.DeadLetter(transport.DeadLetter{Topic: "dead"}, middleware.DeadLetterOptions{Retry: p, Publisher: pub}), middleware.Retry(p))
		_, err := h(message.NewMessageWithContext(t.Context(), "1", nil))
		require.NoError(t, err)
		require.Equal(t, "3", pub.msgs[0].Metadata[transport.DeadAttemptsHeader])
	})
}

// C3 of cases.md: what cannot be dead-lettered is not acked.
func TestDeadLetterInPlaceReturnsAnErrorUnlessPublished(t *testing.T) {
	t.Parallel()
	msg := func() *message.Message { return message.NewMessage("1", nil) }
	dead := func(to string, pub message.Publisher) error {
		_, err := middleware.DeadLetter(transport.DeadLetter{Topic: to}, middleware.DeadLetterOptions{Publisher: pub})(failing(errBoom))(msg())
		return err
	}
	require.ErrorContains(t, dead("dead", nil), "no publisher given")
	require.ErrorContains(t, dead("a/b", &publisher{}), "only letters")
	require.NoError(t, dead("dead", &publisher{}))

	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		err := dead("dead", &publisher{fails: 1})
		require.EqualError(t, err, `dead letter "dead": publish of message "1": broker is down, after: boom`)
		require.ErrorIs(t, err, errBoom)
		require.GreaterOrEqual(t, time.Since(start), 500*time.Millisecond, "E3: at most two tries a second")
		require.LessOrEqual(t, time.Since(start), time.Second)
	})
}

func TestDeadLetterInPlaceOtherAnswers(t *testing.T) {
	t.Parallel()
	pub := &publisher{}
	link := middleware.DeadLetter(transport.DeadLetter{}, middleware.DeadLetterOptions{Publisher: pub})
	dead := func(ctx context.Context, err error) error {
		_, err = link(failing(err))(message.NewMessageWithContext(ctx, "1", nil))
		return err
	}
	require.NoError(t, dead(t.Context(), nil))
	require.NoError(t, dead(t.Context(), skipped{errBoom}))
	require.NoError(t, dead(t.Context(), transport.Already))
	wait := &transport.Wait{After: time.Second}
	require.Same(t, wait, dead(t.Context(), wait))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, permanent{errBoom}, dead(ctx, permanent{errBoom}), "shutdown is not failure")
	require.Empty(t, pub.msgs)
}

func TestDeadLetterInPlaceDrops(t *testing.T) {
	t.Parallel()
	_, err := middleware.DeadLetter(transport.DeadLetter{Mode: transport.DeadDrop}, middleware.DeadLetterOptions{})(failing(errBoom))(message.NewMessage("1", nil))
	require.NoError(t, err)
}

func TestDeadLetterInPlaceBlocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		block := middleware.DeadLetter(transport.DeadLetter{Mode: transport.DeadBlock}, middleware.DeadLetterOptions{
			Retry: policy(t, transport.Backoff{Attempts: 1, MaxInterval: time.Minute}),
		})
		start, runs := time.Now(), 0
		msg := message.NewMessageWithContext(t.Context(), "1", message.Payload("abc"))
		_, err := block(func(m *message.Message) ([]*message.Message, error) {
			require.Equal(t, "abc", string(m.Payload))
			clear(m.Payload)
			if runs++; runs < 4 {
				return nil, permanent{errBoom}
			}
			return nil, nil
		})(msg)
		require.NoError(t, err)
		require.Equal(t, 3*time.Minute, time.Since(start))
		require.Equal(t, t.Context(), msg.Context())

		ctx, cancel := context.WithTimeout(t.Context(), time.Hour+time.Second)
		defer cancel()
		_, err = block(failing(permanent{errBoom}))(message.NewMessageWithContext(ctx, "1", nil))
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestDeadLetterUnderWatermillsRouter(t *testing.T) {
	t.Parallel()
	pub := &publisher{fails: 1}
	publish := watermillRouter(t, failing(errBoom),
		middleware.DeadLetter(transport.DeadLetter{}, middleware.DeadLetterOptions{Publisher: pub}))
	msg := message.NewMessage("1", message.Payload("abc"))
	publish(msg)
	require.Equal(t, []string{"orders--charge--dead"}, pub.topics, "acked only once the copy was taken")
	require.Equal(t, "orders", pub.msgs[0].Metadata[transport.DeadTopicHeader])
	require.Equal(t, "charge", pub.msgs[0].Metadata[transport.DeadConsumerHeader])
}

func BenchmarkDeadLetter(b *testing.B) {
	benchmarkLink(b, middleware.DeadLetter(transport.DeadLetter{}, middleware.DeadLetterOptions{}))
}
