package middleware

import (
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/leat-io/leat/runtime/transport"
)

// Default composes the standard chain of a consumer, outermost first, for the
// YAML file and for code alike. Each place has its reason:
//
//   - wrap is outermost: keys are read from what it unpacks.
//   - dead letter is outside dedup, so that what dedup refuses for good (no
//     key, an id used twice) reaches it too, and outside retry, so that it
//     sees an error only when attempts are used up.
//   - dedup is outside retry: a message done before costs no attempt, and
//     retry never takes its "not yet" for a failure.
//   - timeout is inside retry: every attempt has its whole time.
//   - recover is inside timeout: a panic is an error to all links above, and
//     the user's links are guarded with the handler.
//   - use is innermost, and runs once for each attempt.
//
// Nil and zero fields of the policy that name links leave those out; Retry and
// DeadLetter have their defaults. Under Watermill's own Router the links are
// put together by hand, since DeadLetter needs a publisher there.
func Default(p transport.Policy) []message.HandlerMiddleware {
	if p.Retry == nil {
		p.Retry = attempts(0)
	}
	chain := make([]message.HandlerMiddleware, 0, len(p.Wrap)+7+len(p.Use))
	if len(p.Wrap) > 0 {
		r := newRuns()
		chain = append(chain, r.begin)
		chain = append(chain, p.Wrap...)
		chain = append(chain, r.resume)
	}
	chain = append(chain, DeadLetter(p.DeadLetter, DeadLetterOptions{Retry: p.Retry}))
	if p.Dedup != nil {
		chain = append(chain, p.Dedup)
	}
	chain = append(chain, Retry(p.Retry))
	if p.Timeout > 0 {
		chain = append(chain, Timeout(p.Timeout))
	}
	chain = append(chain, Recover())
	return append(chain, p.Use...)
}

// attempts is the default policy with n attempts; 0 is its own number.
func attempts(n int) *transport.RetryPolicy {
	p, err := transport.NewRetryPolicy(transport.Backoff{Attempts: n})
	if err != nil {
		panic(err) // only constants come here
	}
	return p
}
