package watermill

import (
	"encoding/json"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// render writes a value as text.
func render(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case []byte:
		return string(v)
	case bool:
		return strconv.FormatBool(v)
	case time.Time:
		return v.UTC().Format(time.RFC3339)
	case float32:
		return strconv.FormatFloat(float64(v), 'g', -1, 32)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case amqp.Decimal:
		return strconv.Itoa(int(v.Value)) + "e-" + strconv.Itoa(int(v.Scale))
	case amqp.Table, []any:
		text, _ := json.Marshal(plain(v)) //nolint:errchkjson // of strings
		return string(text)
	default:
		text, _ := json.Marshal(v) //nolint:errchkjson // of integers
		return string(text)
	}
}

// plain makes a nested value one of texts, for people to read.
func plain(v any) any {
	switch v := v.(type) {
	case amqp.Table:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = plain(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = plain(e)
		}
		return out
	default:
		return render(v)
	}
}

// value is a typed value in JSON: exactly one field is set.
type value struct {
	Nil     bool             `json:"nil,omitempty"`
	Bool    *bool            `json:"bool,omitempty"`
	Byte    *byte            `json:"byte,omitempty"`
	Int8    *int8            `json:"int8,omitempty"`
	Int     *int             `json:"int,omitempty"`
	Int16   *int16           `json:"int16,omitempty"`
	Int32   *int32           `json:"int32,omitempty"`
	Int64   *int64           `json:"int64,omitempty"`
	Float32 *string          `json:"float32,omitempty"` // text: JSON has no NaN
	Float64 *string          `json:"float64,omitempty"`
	Decimal *amqp.Decimal    `json:"decimal,omitempty"`
	Time    *int64           `json:"time,omitempty"` // Unix seconds, as on the wire
	String  *[]byte          `json:"string,omitempty"`
	Bytes   *[]byte          `json:"bytes,omitempty"`
	Table   map[string]value `json:"table,omitempty"`
	Empty   bool             `json:"empty_table,omitempty"`
	Array   *[]value         `json:"array,omitempty"`
}

// describe writes a value so that [typed] gives it back.
func describe(v any) string {
	text, _ := json.Marshal(valueOf(v)) //nolint:errchkjson // nothing in it can fail
	return string(text)
}

func valueOf(v any) (out value) {
	switch v := v.(type) {
	case bool:
		out.Bool = &v
	case byte:
		out.Byte = &v
	case int8:
		out.Int8 = &v
	case int:
		out.Int = &v
	case int16:
		out.Int16 = &v
	case int32:
		out.Int32 = &v
	case int64:
		out.Int64 = &v
	case float32:
		s := render(v)
		out.Float32 = &s
	case float64:
		s := render(v)
		out.Float64 = &s
	case amqp.Decimal:
		out.Decimal = &v
	case time.Time:
		s := v.Unix()
		out.Time = &s
	case string:
		b := []byte(v)
		out.String = &b
	case []byte:
		out.Bytes = &v
	case amqp.Table:
		out.Empty = len(v) == 0
		out.Table = make(map[string]value, len(v))
		for k, e := range v {
			out.Table[k] = valueOf(e)
		}
	case []any:
		list := make([]value, len(v))
		for i, e := range v {
			list[i] = valueOf(e)
		}
		out.Array = &list
	default:
		out.Nil = true
	}
	return out
}

// typed reads what describe has written; false for any other text.
func typed(text string) (any, bool) {
	var v value
	if text == "" || json.Unmarshal([]byte(text), &v) != nil {
		return nil, false
	}
	return v.value()
}

func (v *value) value() (any, bool) {
	switch {
	case v.Nil:
		return nil, true
	case v.Bool != nil:
		return *v.Bool, true
	case v.Byte != nil:
		return *v.Byte, true
	case v.Int8 != nil:
		return *v.Int8, true
	case v.Int != nil:
		return *v.Int, true
	case v.Int16 != nil:
		return *v.Int16, true
	case v.Int32 != nil:
		return *v.Int32, true
	case v.Int64 != nil:
		return *v.Int64, true
	case v.Float32 != nil:
		f, err := strconv.ParseFloat(*v.Float32, 32)
		return float32(f), err == nil
	case v.Float64 != nil:
		f, err := strconv.ParseFloat(*v.Float64, 64)
		return f, err == nil
	case v.Decimal != nil:
		return *v.Decimal, true
	case v.Time != nil:
		return time.Unix(*v.Time, 0), true
	case v.String != nil:
		return string(*v.String), true
	case v.Bytes != nil:
		return *v.Bytes, true
	case v.Array != nil:
		list := make([]any, len(*v.Array))
		for i := range *v.Array {
			var ok bool
			if list[i], ok = (*v.Array)[i].value(); !ok {
				return nil, false
			}
		}
		return list, true
	case v.Table != nil || v.Empty:
		t := make(amqp.Table, len(v.Table))
		for k, e := range v.Table {
			var ok bool
			if t[k], ok = e.value(); !ok {
				return nil, false
			}
		}
		return t, true
	default:
		return nil, false
	}
}
