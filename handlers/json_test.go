package handlers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/handlers"
	"github.com/leat-io/leat/runtime/transport"
)

type order struct {
	ID    string    `json:"id"`
	Total int       `json:"total"`
	At    time.Time `json:"at"`
	Lines []struct {
		Count uint8 `json:"count"`
	} `json:"lines"`
}

func TestJSON(t *testing.T) {
	t.Parallel()
	var got order
	var inner context.Context
	h := handlers.JSON(func(ctx context.Context, o order) error {
		got, inner = o, ctx
		return nil
	})
	out, outputs, err := run(t, h, []byte(" {\"id\":\"a\",\"total\":5,\"unknown\":1}\n"))
	require.NoError(t, err)
	require.Empty(t, out)
	require.Empty(t, outputs)
	require.Equal(t, order{ID: "a", Total: 5}, got)
	require.NotNil(t, transport.AttemptFrom(inner))

	failed := errors.New("failed")
	_, _, err = run(t, handlers.JSON(func(context.Context, *order) error { return failed }), []byte(`{}`))
	require.Equal(t, failed, err, "the handler's own error is not touched")
}

func TestJSONOfWhatDoesNotDecode(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ body, want string }{
		"empty":            {"", "body is empty: want JSON for handlers_test.order"},
		"not JSON":         {"secret", "body of 6 bytes: not valid JSON at offset 1"},
		"cut off":          {`{"id":"secret`, "body of 13 bytes: not valid JSON at offset 13"},
		"trailing data":    {`{"id":"a"} {"id":"secret"}`, "body of 26 bytes: not valid JSON at offset 12"},
		"trailing bracket": {`{"id":"a"}]`, "body of 11 bytes: not valid JSON at offset 11"},
		"bytes":            {"\xff\xfe\x00", "body of 3 bytes: not valid JSON at offset 1"},
		"wrong type":       {`{"total":"secret"}`, `body of 18 bytes: field "total": string at offset 17 does not fit int`},
		"a fraction":       {`{"total":31337.5}`, `body of 17 bytes: field "total": number at offset 16 does not fit int`},
		"out of range":     {`{"lines":[{"count":31337}]}`, `body of 27 bytes: field "lines.count": number at offset 24 does not fit uint8`},
		"another value":    {`["secret"]`, "body of 10 bytes: array at offset 1 does not fit handlers_test.order"},
		"its own decoding": {`{"at":"secret"}`, "body of 15 bytes: does not fit handlers_test.order (time.ParseError)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := handlers.JSON(func(context.Context, order) error {
				t.Error("the handler has run")
				return nil
			})
			_, _, err := run(t, h, []byte(tc.body))
			require.EqualError(t, err, tc.want)
			require.NotContains(t, err.Error(), "secret")
			require.NotContains(t, err.Error(), "31337")
			require.Equal(t, transport.Decision{Action: transport.ActionDead, Reason: transport.ReasonUndecodable, Spent: true}, decide(t, err))
		})
	}
	_, _, err := run(t, handlers.JSON(func(context.Context, order) error { return nil }), nil)
	require.EqualError(t, err, "body is missing: want JSON for handlers_test.order")
	_, _, err = run(t, handlers.JSON(func(context.Context, any) error { return nil }), []byte{})
	require.EqualError(t, err, "body is empty: want JSON for interface {}")
}

func TestJSONOut(t *testing.T) {
	t.Parallel()
	h := handlers.JSONOut(func(_ context.Context, o order) (*order, error) {
		switch o.ID {
		case "fail":
			return &o, errors.New("failed")
		case "none":
			return nil, nil //nolint:nilnil // it sends nothing
		}
		return &o, nil
	})
	out, _, err := run(t, h, []byte(`{"id":"a"}`))
	require.NoError(t, err)
	require.Len(t, out, 1)
	require.JSONEq(t, `{"id":"a","total":0,"at":"0001-01-01T00:00:00Z","lines":null}`, string(out[0].Payload))
	require.NotEmpty(t, out[0].UUID)

	out, _, err = run(t, h, []byte(`{"id":"none"}`))
	require.NoError(t, err)
	require.Empty(t, out)
	out, _, err = run(t, h, []byte(`{"id":"fail"}`))
	require.EqualError(t, err, "failed")
	require.Empty(t, out)
	_, _, err = run(t, h, []byte(`{`))
	require.Equal(t, transport.ReasonUndecodable, decide(t, err).Reason)
}

func TestJSONOutResults(t *testing.T) {
	t.Parallel()
	own := &message.Message{UUID: "mine", Payload: []byte("x")}
	result := func(v any) ([]*message.Message, error) {
		out, _, err := run(t, handlers.JSONOut(func(context.Context, any) (any, error) { return v, nil }), []byte(`1`))
		return out, err
	}
	for want, v := range map[string]any{`null`: []string(nil), `{"a":1}`: map[string]int{"a": 1}, `0`: 0, `raw`: []byte("raw"), `{}`: json.RawMessage(`{}`)} {
		out, err := result(v)
		require.NoError(t, err)
		require.Equal(t, want, string(out[0].Payload))
	}
	out, err := result(own)
	require.NoError(t, err)
	require.Same(t, own, out[0])
	for _, v := range []any{nil, (*order)(nil), (*message.Message)(nil)} {
		out, err := result(v)
		require.NoError(t, err)
		require.Empty(t, out, "%T", v)
	}
}

type leaky struct{}

func (leaky) MarshalJSON() ([]byte, error) { return nil, errors.New("secret") }

func TestOutputThatCannotBeJSONIsPermanent(t *testing.T) {
	t.Parallel()
	for want, v := range map[string]any{
		"output chan int cannot be JSON (json.UnsupportedTypeError)":     make(chan int),
		"output float64 cannot be JSON (json.UnsupportedValueError)":     math.NaN(),
		"output handlers_test.leaky cannot be JSON (errors.errorString)": leaky{},
	} {
		_, _, err := run(t, handlers.JSONOut(func(context.Context, any) (any, error) { return v, nil }), []byte(`1`))
		require.EqualError(t, err, want)
		require.Equal(t, transport.Decision{Action: transport.ActionDead, Reason: transport.ReasonPermanent, Spent: true}, decide(t, fmt.Errorf("x: %w", err)))
	}
}
