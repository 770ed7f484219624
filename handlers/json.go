package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/runtime/transport"
)

// JSON makes a handler of a function that takes the body of the message as a
// value, decoded by the rules of encoding/json: unknown fields are ignored,
// null is the zero value. A body that is empty, is not JSON, has more behind
// the value or does not fit T is dead-lettered at once, with the reason
// "undecodable" and a text that names the place and never what stood there.
func JSON[T any](fn func(ctx context.Context, v T) error) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		v, err := decode[T](msg.Payload)
		if err != nil {
			return nil, err
		}
		return nil, fn(msg.Context(), v)
	}
}

// JSONOut is [JSON] for a function with a result, which is sent to the
// consumer's publish_to as JSON. A nil pointer or interface sends nothing; a
// *message.Message is sent as it is, as by [Emit].
func JSONOut[T, R any](fn func(ctx context.Context, v T) (R, error)) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		v, err := decode[T](msg.Payload)
		if err != nil {
			return nil, err
		}
		result, err := fn(msg.Context(), v)
		if err != nil || isNil(result) {
			return nil, err
		}
		out, err := encode(result)
		if err != nil {
			return nil, err
		}
		return []*message.Message{out}, nil
	}
}

func isNil(v any) bool {
	r := reflect.ValueOf(v)
	return !r.IsValid() || r.Kind() == reflect.Pointer && r.IsNil()
}

func decode[T any](body []byte) (T, error) {
	var v T
	if len(body) == 0 {
		what := "is empty"
		if body == nil {
			what = "is missing"
		}
		return v, &codecError{text: fmt.Sprintf("body %s: want JSON for %v", what, reflect.TypeFor[T]()), reason: transport.ReasonUndecodable}
	}
	if err := json.Unmarshal(body, &v); err != nil {
		text := fmt.Sprintf("body of %d bytes: %s", len(body), explain(err, reflect.TypeFor[T]()))
		return v, &codecError{text: text, cause: err, reason: transport.ReasonUndecodable}
	}
	return v, nil
}

// explain says where decoding failed. The texts of encoding/json quote the body.
func explain(err error, want reflect.Type) string {
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Sprintf("not valid JSON at offset %d", e.Offset)
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		found, _, _ := strings.Cut(e.Value, " ") // "number 1.5"
		field := ""
		if e.Field != "" {
			field = fmt.Sprintf("field %q: ", e.Field)
		}
		return fmt.Sprintf("%s%s at offset %d does not fit %v", field, found, e.Offset, e.Type)
	}
	return fmt.Sprintf("does not fit %v (%s)", want, transport.Class(err))
}
