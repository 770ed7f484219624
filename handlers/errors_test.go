package handlers_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/handlers"
	"github.com/leat-io/leat/runtime/transport"
)

func TestErrorsAreUnderstood(t *testing.T) {
	t.Parallel()
	plain := errors.New("plain")
	permanent := transport.Decision{Action: transport.ActionDead, Reason: transport.ReasonPermanent, Spent: true}
	for name, tc := range map[string]struct {
		err  error
		want transport.Decision
		text string
	}{
		"permanent":       {handlers.Permanent(plain), permanent, "plain"},
		"wrapped":         {fmt.Errorf("x: %w", handlers.Permanent(plain)), permanent, "x: plain"},
		"joined":          {errors.Join(plain, handlers.Permanent(plain)), permanent, "plain\nplain"},
		"retry after":     {handlers.RetryAfter(plain, time.Hour), transport.Decision{Action: transport.ActionWait, After: time.Hour, Spent: true}, "plain"},
		"retry after 0":   {handlers.RetryAfter(plain, 0), transport.Decision{Action: transport.ActionWait, After: 200 * time.Millisecond, Spent: true}, "plain"},
		"retry after -1":  {handlers.RetryAfter(plain, -1), transport.Decision{Action: transport.ActionWait, After: 200 * time.Millisecond, Spent: true}, "plain"},
		"skip":            {handlers.Skip("not ours"), transport.Decision{Action: transport.ActionSkip, Spent: true}, "skipped: not ours"},
		"the outer wins":  {handlers.RetryAfter(handlers.Permanent(plain), time.Hour), transport.Decision{Action: transport.ActionWait, After: time.Hour, Spent: true}, "plain"},
		"the outer wins2": {handlers.Permanent(handlers.RetryAfter(plain, time.Hour)), permanent, "plain"},
	} {
		require.Equal(t, tc.want, decide(t, tc.err), name)
		require.EqualError(t, tc.err, tc.text, name)
	}
	require.ErrorIs(t, handlers.Permanent(plain), plain)
	require.ErrorIs(t, handlers.RetryAfter(plain, 1), plain)
	require.NoError(t, handlers.Permanent(nil))
	require.NoError(t, handlers.RetryAfter(nil, time.Hour))
}
