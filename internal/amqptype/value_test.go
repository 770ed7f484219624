package amqptype_test

import (
	"math"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/internal/amqptype"
)

func TestHeaderValuesAreRendered(t *testing.T) {
	t.Parallel()
	for want, v := range map[string]any{
		"":                     nil,
		"true":                 true,
		"-7":                   int16(-7),
		"1.5":                  float32(1.5),
		"-0.05":                amqp091.Decimal{Scale: 2, Value: -5},
		"12":                   amqp091.Decimal{Value: 12},
		"2023-11-14T22:13:20Z": time.Unix(1700000000, 0),
		"1099511627776":        time.Unix(1<<40, 0),
		`[1,"two",null]`:       []any{int32(1), "two", nil},
		`{"a":{"b":1.5}}`:      amqp091.Table{"a": amqp091.Table{"b": 1.5}},
		`{"n":"NaN"}`:          amqp091.Table{"n": math.NaN()},
	} {
		require.Equal(t, want, amqptype.Render(v))
	}
}

func TestHeaderValuesComeBack(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]any{
		"bool": true, "byte": byte(200), "int8": int8(-3), "int16": int16(-300), "uint16": uint16(60000),
		"int32": int32(-70000), "uint32": uint32(4e9), "int64": int64(-1 << 60),
		"float32": float32(1.5), "float64": 2.25, "decimal": amqp091.Decimal{Scale: 2, Value: -5},
		"string": "text", "bytes": []byte{1, 0, 255}, "nil": nil, "time": time.Unix(1700000000, 0),
		"array": []any{int32(1), "two", nil, amqp091.Table{"deep": []any{true}}},
		"table": amqp091.Table{"a": int64(1), "b": amqp091.Table{"c": "d"}},
	} {
		gotName, got := round(t, name, v)
		require.Equal(t, name, gotName)
		require.Equal(t, v, got, name)
	}
	name, v := round(t, "a\xff", amqp091.Table{"\xfe": "\xfd", "inf": math.Inf(-1)})
	require.Equal(t, "a\xff", name)
	require.Equal(t, amqp091.Table{"\xfe": "\xfd", "inf": math.Inf(-1)}, v)
}

// round writes a value and reads it.
func round(t *testing.T, name string, v any) (string, any) {
	t.Helper()
	back := amqptype.Decode(amqptype.Encode([]amqptype.Header{{Name: name, Value: v}}))
	require.Len(t, back, 1)
	return back[0].Name, back[0].Value
}

// TestRestore: of headers whose text was changed, the text stays.
func TestRestore(t *testing.T) {
	t.Parallel()
	types := amqptype.Encode([]amqptype.Header{{Name: "kept", Value: int32(7)}, {Name: "changed", Value: int32(7)}, {Name: "gone", Value: true}})
	table := amqp091.Table{"kept": "7", "changed": "8"}
	amqptype.Restore(table, types)
	require.Equal(t, amqp091.Table{"kept": int32(7), "changed": "8"}, table)
	amqptype.Restore(table, "not ours")
	require.Equal(t, amqp091.Table{"kept": int32(7), "changed": "8"}, table)
}
