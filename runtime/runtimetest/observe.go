package runtimetest

import (
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/runtime/transport"
)

// order is a failure on demand.
type order struct {
	consumer string // empty: any
	times    int
	err      error
}

// observe is the innermost link around every handler.
func (l *ledger) observe(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) (out []*message.Message, err error) {
		a := transport.AttemptFrom(msg.Context())
		if a == nil { // a link has taken the context away
			return next(msg)
		}
		r := l.begin(a)
		if err := l.ordered(a.Consumer()); err != nil {
			l.returned(r, err)
			return nil, err
		}
		ended := false
		defer func() {
			v := recover()
			switch {
			case ended:
				l.returned(r, err)
			case v != nil:
				l.returned(r, &transport.Panicked{Value: v})
				panic(v)
			default:
				l.returned(r, &transport.Panicked{})
			}
		}()
		out, err = next(msg)
		ended = true
		return out, err
	}
}

func (l *ledger) returned(r *run, err error) {
	text := ""
	if err != nil {
		text = transport.CapText(err.Error(), maxText)
	}
	l.write(func() { r.returned, r.err = true, text })
}

// maxText bounds an error in a timeline.
const maxText = 300

// ordered takes the failure that is due; nil if none is.
func (l *ledger) ordered(consumer string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.orders {
		o := &l.orders[i]
		if o.times > 0 && (o.consumer == "" || o.consumer == consumer) {
			o.times--
			return o.err
		}
	}
	return nil
}
