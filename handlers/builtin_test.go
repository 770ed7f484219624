package handlers_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/handlers"
	"github.com/leat-io/leat/runtime/transport"
)

func logger(w *bytes.Buffer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

func TestLog(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	returned, outputs, err := run(t, handlers.Log(handlers.LogOptions{}, logger(&out)), []byte("secret"))
	require.NoError(t, err)
	require.Empty(t, returned)
	require.Empty(t, outputs)
	require.Equal(t, "level=INFO msg=message id=id-1 key=k size=6 topic=orders partition=2 offset=7 attempt=3\n", out.String())

	out.Reset()
	_, _, err = run(t, handlers.Log(handlers.LogOptions{Payload: true}, logger(&out)), []byte("body"))
	require.NoError(t, err)
	require.Contains(t, out.String(), " payload=body\n")

	out.Reset()
	_, _, err = run(t, handlers.Log(handlers.LogOptions{Payload: true}, logger(&out)), []byte(strings.Repeat("x", 1<<20)))
	require.NoError(t, err)
	require.Contains(t, out.String(), "size=1048576")
	require.Less(t, out.Len(), 5<<10)

	out.Reset()
	_, err = handlers.Log(handlers.LogOptions{}, logger(&out))(message.NewMessage("plain", nil))
	require.NoError(t, err)
	require.Equal(t, "level=INFO msg=message id=plain key=\"\" size=0\n", out.String())
}

func TestDiscard(t *testing.T) {
	t.Parallel()
	returned, outputs, err := run(t, handlers.Discard(), []byte("x"))
	require.NoError(t, err)
	require.Empty(t, returned)
	require.Empty(t, outputs)
}

func TestForward(t *testing.T) {
	t.Parallel()
	same := func(m *message.Message) {
		require.Equal(t, "id-1", m.UUID)
		require.Equal(t, "body", string(m.Payload))
		require.Equal(t, message.Metadata{transport.KeyHeader: "k", "trace": "abc"}, m.Metadata)
	}
	returned, outputs, err := run(t, handlers.Forward(handlers.ForwardOptions{Topic: "audit"}), []byte("body"))
	require.NoError(t, err)
	require.Empty(t, returned)
	require.Len(t, outputs, 1)
	require.Equal(t, "audit", outputs[0].Topic)
	same(outputs[0].Message)

	returned, outputs, err = run(t, handlers.Forward(handlers.ForwardOptions{}), []byte("body"))
	require.NoError(t, err)
	require.Empty(t, outputs)
	require.Len(t, returned, 1)
	same(returned[0])

	_, err = handlers.Forward(handlers.ForwardOptions{Topic: "audit"})(message.NewMessage("plain", nil))
	require.ErrorIs(t, err, transport.ErrUnsupported)
}
