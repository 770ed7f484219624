package amqptype

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rabbitmq/amqp091-go"
)

// Name is the header that keeps the values of headers that are not strings,
// beside their renderings: a list of [name, value] in JSON, where a value is
// {"type": text}. A message that is published with it gets its headers back as
// they were, but for those whose rendering was changed.
const Name = "leat_amqp_types"

// typed is a header value in JSON, by the letter of its type in the protocol.
type typed map[string]json.RawMessage

// Header is one whose value is not a string.
type Header struct {
	Name  string
	Value any
}

var errField = errors.New("not a header value of AMQP")

// Encode writes the value of the header [Name].
func Encode(headers []Header) string {
	slices.SortFunc(headers, func(a, b Header) int { return strings.Compare(a.Name, b.Name) })
	list := make([][2]any, len(headers))
	for i, h := range headers {
		list[i] = [2]any{safeText(h.Name), toTyped(h.Value)}
	}
	b, _ := json.Marshal(list) //nolint:errchkjson // made of what can be encoded
	return string(b)
}

// Decode reads it; what is not understood is left out.
func Decode(text string) []Header {
	var list [][2]json.RawMessage
	if json.Unmarshal([]byte(text), &list) != nil {
		return nil
	}
	var headers []Header
	for _, pair := range list {
		name, err := unsafeText(pair[0])
		if err != nil {
			continue
		}
		if v, err := fromTyped(pair[1]); err == nil {
			headers = append(headers, Header{name, v})
		}
	}
	return headers
}

// Restore gives those headers of table their types back that text, which
// Encode has written, has, and whose rendering was not changed.
func Restore(table amqp091.Table, text string) {
	for _, h := range Decode(text) {
		if v, ok := table[h.Name]; ok && v == Render(h.Value) {
			table[h.Name] = h.Value
		}
	}
}

// Render writes a value as text.
func Render(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case []byte:
		return string(v)
	case float32:
		return strconv.FormatFloat(float64(v), 'g', -1, 32)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case time.Time:
		return renderTime(v)
	case amqp091.Decimal:
		return renderDecimal(v)
	case amqp091.Table, []any:
		b, _ := json.Marshal(plain(v)) //nolint:errchkjson // made of what can be encoded
		return string(b)
	default:
		return fmt.Sprint(v) // bool and integers
	}
}

func renderTime(v time.Time) string {
	if v = v.UTC(); v.Year() >= 0 && v.Year() <= 9999 {
		return v.Format(time.RFC3339)
	}
	return strconv.FormatInt(v.Unix(), 10)
}

func renderDecimal(v amqp091.Decimal) string {
	digits := strconv.FormatInt(int64(v.Value), 10)
	sign := ""
	if v.Value < 0 {
		sign, digits = "-", digits[1:]
	}
	for len(digits) <= int(v.Scale) {
		digits = "0" + digits
	}
	if v.Scale == 0 {
		return sign + digits
	}
	at := len(digits) - int(v.Scale)
	return sign + digits[:at] + "." + digits[at:]
}

// plain is a value as JSON has it, for people.
func plain(v any) any {
	switch v := v.(type) {
	case amqp091.Table:
		m := make(map[string]any, len(v))
		for k, x := range v {
			m[k] = plain(x)
		}
		return m
	case []any:
		list := make([]any, len(v))
		for i, x := range v {
			list[i] = plain(x)
		}
		return list
	case nil, bool, int8, uint8, int16, uint16, int32, uint32, int64:
		return v
	case float32, float64:
		if text := Render(v); json.Valid([]byte(text)) {
			return json.RawMessage(text)
		}
	}
	return Render(v)
}

// toTyped writes a value so that fromTyped gives it back exactly.
func toTyped(v any) map[string]any {
	one := func(letter string, v any) map[string]any { return map[string]any{letter: v} }
	switch v := v.(type) {
	case nil:
		return one("V", nil)
	case bool:
		return one("t", v)
	case string:
		return one("S", safeText(v))
	case []byte:
		return one("x", v)
	case int8:
		return one("b", v)
	case uint8:
		return one("B", v)
	case int16:
		return one("s", v)
	case uint16:
		return one("u", v)
	case int32:
		return one("I", v)
	case uint32:
		return one("i", v)
	case int64:
		return one("l", v)
	case float32:
		return one("f", math.Float32bits(v))
	case float64:
		return one("d", math.Float64bits(v))
	case time.Time:
		return one("T", v.Unix())
	case amqp091.Decimal:
		return one("D", []int64{int64(v.Scale), int64(v.Value)})
	case []any:
		list := make([]any, len(v))
		for i, x := range v {
			list[i] = toTyped(x)
		}
		return one("A", list)
	case amqp091.Table:
		list := make([][2]any, 0, len(v))
		for _, k := range slices.Sorted(maps.Keys(v)) {
			list = append(list, [2]any{safeText(k), toTyped(v[k])})
		}
		return one("F", list)
	default:
		return one("S", safeText(fmt.Sprint(v))) // the library has no other types
	}
}

func fromTyped(raw json.RawMessage) (any, error) {
	var one typed
	if err := json.Unmarshal(raw, &one); err != nil || len(one) != 1 {
		return nil, errField
	}
	for letter, v := range one {
		switch letter {
		case "V":
			return nil, nil //nolint:nilnil // nil is a value of AMQP
		case "t":
			return as[bool](v)
		case "S":
			return unsafeText(v)
		case "x":
			return as[[]byte](v)
		case "b":
			return as[int8](v)
		case "B":
			return as[uint8](v)
		case "s":
			return as[int16](v)
		case "u":
			return as[uint16](v)
		case "I":
			return as[int32](v)
		case "i":
			return as[uint32](v)
		case "l":
			return as[int64](v)
		case "f":
			bits, err := as[uint32](v)
			return math.Float32frombits(bits), err
		case "d":
			bits, err := as[uint64](v)
			return math.Float64frombits(bits), err
		case "T":
			seconds, err := as[int64](v)
			return time.Unix(seconds, 0), err
		case "D":
			d, err := as[[2]int64](v)
			if err != nil || d[0] < 0 || d[0] > math.MaxUint8 || d[1] < math.MinInt32 || d[1] > math.MaxInt32 {
				return nil, errField
			}
			return amqp091.Decimal{Scale: uint8(d[0]), Value: int32(d[1])}, nil //nolint:gosec // looked at above
		case "A":
			return fromTypedArray(v)
		case "F":
			return fromTypedTable(v)
		}
	}
	return nil, errField
}

func fromTypedArray(raw json.RawMessage) (any, error) {
	items, err := as[[]json.RawMessage](raw)
	if err != nil {
		return nil, err
	}
	list := make([]any, len(items))
	for i, item := range items {
		if list[i], err = fromTyped(item); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func fromTypedTable(raw json.RawMessage) (any, error) {
	pairs, err := as[[][2]json.RawMessage](raw)
	if err != nil {
		return nil, err
	}
	t := make(amqp091.Table, len(pairs))
	for _, p := range pairs {
		k, err := unsafeText(p[0])
		if err != nil {
			return nil, err
		}
		if t[k], err = fromTyped(p[1]); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func as[T any](raw json.RawMessage) (T, error) {
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		return v, errField
	}
	return v, nil
}

// safeText is a text for JSON, where bytes that are no UTF-8 stand as {"x": base64}.
func safeText(s string) any {
	if utf8.ValidString(s) {
		return s
	}
	return map[string]string{"x": base64.StdEncoding.EncodeToString([]byte(s))}
}

func unsafeText(raw json.RawMessage) (string, error) {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s, nil
	}
	b, err := as[map[string][]byte](raw)
	if err != nil || len(b) != 1 {
		return "", errField
	}
	return string(b["x"]), nil
}
