package transport_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
)

func policy(tb testing.TB, b transport.Backoff) *transport.RetryPolicy {
	tb.Helper()
	p, err := transport.NewRetryPolicy(b)
	require.NoError(tb, err)
	return p
}

func TestRetryTable(t *testing.T) {
	t.Parallel()
	p := policy(t, transport.Backoff{
		InitialInterval: 100 * time.Millisecond, MaxInterval: 700 * time.Millisecond, Multiplier: 2, Jitter: -1,
	})
	for n, ms := range map[int]int64{
		math.MinInt: 100, -1: 100, 0: 100, 1: 100, 2: 200, 3: 400, 4: 700, 5: 700, 1e9: 700, math.MaxInt: 700,
	} {
		require.Equal(t, ms, p.Wait(n).Milliseconds(), "attempt %d", n)
	}
}

func TestRetryDefaults(t *testing.T) {
	t.Parallel()
	p := policy(t, transport.Backoff{})
	require.Equal(t, 5, p.Attempts())
	require.Equal(t, 30*time.Second, p.MaxInterval())
	for n, base := range map[int]time.Duration{1: 200 * time.Millisecond, 2: 400 * time.Millisecond, 1e9: 30 * time.Second} {
		for range 200 {
			require.GreaterOrEqual(t, p.Wait(n), base)
			require.LessOrEqual(t, p.Wait(n), base+base/2)
		}
	}
}

func TestRetryRefusesWhatCannotBeMeant(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]transport.Backoff{
		"attempts":               {Attempts: -2},
		"negative interval":      {InitialInterval: -1},
		"negative max":           {MaxInterval: -1},
		"max below initial":      {InitialInterval: time.Second, MaxInterval: time.Millisecond},
		"max below default":      {MaxInterval: time.Millisecond},
		"multiplier below 1":     {Multiplier: 0.5},
		"negative multiplier":    {Multiplier: -2},
		"multiplier NaN":         {Multiplier: math.NaN()},
		"multiplier infinite":    {Multiplier: math.Inf(1)},
		"multiplier -infinite":   {Multiplier: math.Inf(-1)},
		"jitter above 1":         {Jitter: 1.1},
		"jitter NaN":             {Jitter: math.NaN()},
		"jitter infinite":        {Jitter: math.Inf(1)},
		"jitter of a negative":   {Jitter: -0.5},
		"jitter just below none": {Jitter: math.Nextafter(-1, -2)},
	} {
		_, err := transport.NewRetryPolicy(b)
		require.Error(t, err, name)
	}
}

func FuzzRetryPolicy(f *testing.F) {
	f.Add(5, int64(200*time.Millisecond), int64(30*time.Second), 2.0, 0.5, 3)
	f.Add(-1, int64(1), int64(math.MaxInt64), 1.0, 1.0, int(1e9))
	f.Add(1, int64(math.MaxInt64), int64(math.MaxInt64), 1e300, 1.0, 0)
	f.Add(0, int64(-1), int64(0), math.Inf(-1), math.NaN(), -1)
	f.Add(3, int64(1), int64(time.Hour), 1.0000001, 1e-300, 257)
	f.Fuzz(func(t *testing.T, attempts int, initial, most int64, multiplier, jitter float64, n int) {
		b := transport.Backoff{
			Attempts: attempts, InitialInterval: time.Duration(initial), MaxInterval: time.Duration(most),
			Multiplier: multiplier, Jitter: jitter,
		}
		p, err := transport.NewRetryPolicy(b)
		if err != nil {
			return
		}
		b.Jitter = -1
		base := policy(t, b).Wait(n)
		require.GreaterOrEqual(t, base, time.Duration(0))
		require.LessOrEqual(t, base, p.MaxInterval())
		require.LessOrEqual(t, base, policy(t, b).Wait(max(n, n+1)), "waits never shrink")
		got := p.Wait(n)
		require.GreaterOrEqual(t, got, base)
		require.LessOrEqual(t, float64(got), 2*float64(base)+1)

		d := p.Decide(errors.New("x"), n)
		if p.Attempts() != transport.Unlimited && n >= p.Attempts() {
			require.Equal(t, transport.Decision{Action: transport.ActionDead, Reason: transport.ReasonExhausted, Spent: true}, d)
		} else {
			require.Equal(t, transport.ActionWait, d.Action)
			require.GreaterOrEqual(t, d.After, base)
		}
	})
}

// says has all three methods, as an error of somebody's domain might.
type says struct {
	permanent, skip bool
	after           time.Duration
	err             error
}

func (e says) Error() string             { return "says" }
func (e says) Unwrap() error             { return e.err }
func (e says) Permanent() bool           { return e.permanent }
func (e says) Skip() bool                { return e.skip }
func (e says) RetryAfter() time.Duration { return e.after }

type permanentError bool

func (e permanentError) Error() string   { return "only permanent" }
func (e permanentError) Permanent() bool { return bool(e) }

type reasonError struct{ permanentError }

func (reasonError) DeadReason() string { return transport.ReasonIDReused }

func TestDecide(t *testing.T) {
	t.Parallel()
	plain := errors.New("plain")
	skip, dead, later := says{skip: true}, says{permanent: true}, says{after: time.Minute}
	wait := func(d time.Duration) transport.Decision {
		return transport.Decision{Action: transport.ActionWait, After: d, Spent: true}
	}
	backoff := wait(200 * time.Millisecond)
	skipped := transport.Decision{Action: transport.ActionSkip, Spent: true}
	permanent := transport.Decision{Action: transport.ActionDead, Reason: transport.ReasonPermanent, Spent: true}
	exhausted := transport.Decision{Action: transport.ActionDead, Reason: transport.ReasonExhausted, Spent: true}

	for name, tc := range map[string]struct {
		err  error
		n    int
		want transport.Decision
	}{
		"plain":                         {plain, 1, backoff},
		"plain, number 0":               {plain, 0, backoff},
		"plain, the last but one":       {plain, 4, wait(1600 * time.Millisecond)},
		"plain, the last":               {plain, 5, exhausted},
		"plain, long after the last":    {plain, 1e9, exhausted},
		"a panic":                       {&transport.Panicked{Value: "x"}, 1, backoff},
		"a panic with a permanent":      {&transport.Panicked{Value: dead}, 1, permanent},
		"a Goexit":                      {&transport.Panicked{}, 1, backoff},
		"skip":                          {skip, 1, skipped},
		"skip on the last":              {skip, 5, skipped},
		"permanent":                     {dead, 1, permanent},
		"permanent with a reason":       {reasonError{true}, 1, transport.Decision{Action: transport.ActionDead, Reason: transport.ReasonIDReused, Spent: true}},
		"permanent and skip":            {says{permanent: true, skip: true}, 1, permanent},
		"not permanent, but later":      {says{after: time.Minute}, 1, wait(time.Minute)},
		"nothing special":               {says{}, 1, backoff},
		"later":                         {later, 1, wait(time.Minute)},
		"later, on the last":            {later, 5, exhausted},
		"later, by a negative":          {says{after: -time.Minute}, 1, backoff},
		"later, by the longest":         {says{after: math.MaxInt64}, 1, wait(math.MaxInt64)},
		"wrapped":                       {fmt.Errorf("a: %w", fmt.Errorf("b: %w", dead)), 1, permanent},
		"the outermost wins":            {says{after: time.Minute, err: dead}, 1, wait(time.Minute)},
		"a false outermost wins":        {says{err: dead}, 1, backoff},
		"joined, the first":             {errors.Join(plain, skip, dead), 1, skipped},
		"joined, depth first":           {errors.Join(errors.Join(plain, dead), skip), 1, permanent},
		"joined, depth before breadth":  {errors.Join(fmt.Errorf("a: %w", fmt.Errorf("b: %w", later)), dead), 1, wait(time.Minute)},
		"two %w":                        {fmt.Errorf("%w and %w", plain, dead), 1, permanent},
		"joined under a wrap":           {fmt.Errorf("x: %w", errors.Join(plain, permanentError(true))), 1, permanent},
		"a wait":                        {&transport.Wait{After: time.Hour, Spent: false, Err: dead}, 9, transport.Decision{Action: transport.ActionWait, After: time.Hour}},
		"a wait, spent, deep":           {errors.Join(plain, fmt.Errorf("x: %w", &transport.Wait{After: 1, Spent: true})), 9, wait(1)},
		"already":                       {fmt.Errorf("x: %w", transport.Already), 9, transport.Decision{Action: transport.ActionDuplicate}},
		"exhausted hides":               {&transport.Exhausted{Attempts: 2, Err: later}, 1, exhausted},
		"exhausted hides a wait":        {&transport.Exhausted{Attempts: 2, Err: &transport.Wait{After: 1}}, 1, exhausted},
		"exhausted hides a skip, deep":  {fmt.Errorf("x: %w", &transport.Exhausted{Err: skip}), 1, exhausted},
		"exhausted beats the outermost": {says{skip: true, err: &transport.Exhausted{Err: plain}}, 1, exhausted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, policy(t, transport.Backoff{Jitter: -1}).Decide(tc.err, tc.n))
		})
	}
}

func TestDecideWithoutLimit(t *testing.T) {
	t.Parallel()
	p := policy(t, transport.Backoff{Attempts: transport.Unlimited, Jitter: -1})
	require.Equal(t, transport.Decision{Action: transport.ActionWait, After: 30 * time.Second, Spent: true}, p.Decide(errors.New("x"), 1e9))
}
