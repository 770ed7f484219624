package amqp

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/rabbitmq/amqp091-go"

	"github.com/leat-io/leat/runtime/transport"
)

// explain says what a broker's error means, and marks what waiting will not mend.
func explain(err error) error {
	var e *amqp091.Error
	if !errors.As(err, &e) {
		if refusedByTLS(err) && !transport.Refused(err) { // else it was explained before
			return transport.Refuse(fmt.Errorf("TLS: %w%s", err, adviseOnTLS(err)))
		}
		return err
	}
	reason := trimReason(e.Reason)
	switch {
	case errors.Is(err, amqp091.ErrSASL):
		return transport.Refuse(errors.New("the broker does not offer this way to log in (SASL PLAIN, or EXTERNAL with tls.external)"))
	case strings.HasPrefix(reason, "remote error: tls: "):
		return transport.Refuse(errors.New(reason))
	case !e.Server && (e.Code == amqp091.AccessRefused || e.Code == amqp091.FrameError):
		return fmt.Errorf("connection lost: %s", reason) // the library's guess; the broker said nothing
	case e.Code == amqp091.NotAllowed && strings.Contains(e.Reason, "limit"):
		return errors.New(reason)
	case e.Code == amqp091.AccessRefused, e.Code == amqp091.NotAllowed, absent(e):
		return transport.Refuse(errors.New(reason + adviseOnRights(reason)))
	case timedOut(e):
		return fmt.Errorf("%s: a delivery was held for longer than the broker's consumer_timeout; shorten timeout or prefetch, or raise it at the broker", reason)
	case e.Code == amqp091.PreconditionFailed:
		return transport.Refuse(mismatch(reason))
	default:
		return errors.New(reason)
	}
}

// trimReason takes the protocol's own word off the front of a reason, and its
// full stop, as more may follow.
func trimReason(reason string) string {
	reason = strings.TrimSuffix(reason, ".")
	if word, rest, ok := strings.Cut(reason, " - "); ok && word == strings.ToUpper(word) {
		return rest
	}
	return reason
}

var inequivalent = regexp.MustCompile(`inequivalent arg '([^']+)' for (queue|exchange) '([^']+)' in vhost '[^']*': received (.+) but current is (.+)$`)

// difference is one argument of what is there that was asked for otherwise.
type difference struct{ argument, what, name, asked, there string }

func parseDifference(reason string) (difference, bool) {
	m := inequivalent.FindStringSubmatch(reason)
	if m == nil {
		return difference{}, false
	}
	return difference{m[1], m[2], m[3], m[4], m[5]}, true
}

// mismatch says what is there and what was asked.
func mismatch(reason string) error {
	d, ok := parseDifference(reason)
	if !ok {
		return errors.New(reason)
	}
	return fmt.Errorf("%s %q is there with %s %s, and was asked for with %s: "+
		"name it under topics to use it as it is, ask for what is there, or delete it once it is empty",
		d.what, d.name, d.argument, strings.TrimPrefix(d.there, "the value "), strings.TrimPrefix(d.asked, "the value "))
}

// code is that of a broker's error; 0 if it is none.
func code(err error) int {
	if e, ok := errors.AsType[*amqp091.Error](err); ok && e.Server {
		return e.Code
	}
	return 0
}

// absent tells whether a queue or an exchange does not exist. The broker has the
// same code for one that is out of reach for a while.
func absent(err error) bool {
	reason := reasonOf(err)
	return code(err) == amqp091.NotFound && (strings.HasPrefix(reason, "NOT_FOUND - no queue ") || strings.HasPrefix(reason, "NOT_FOUND - no exchange "))
}

// timedOut tells whether the broker has taken a delivery back.
func timedOut(e *amqp091.Error) bool {
	return e.Code == amqp091.PreconditionFailed && strings.Contains(e.Reason, "timed out")
}

// reasonOf is the broker's own text.
func reasonOf(err error) string {
	if e, ok := errors.AsType[*amqp091.Error](err); ok {
		return e.Reason
	}
	return ""
}
