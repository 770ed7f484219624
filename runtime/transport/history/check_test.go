package history_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport/history"
)

func options() history.Options { return history.Options{Topic: topic, Dead: dead, Ordered: true} }

func rules(r history.Report) []string {
	var out []string
	for _, v := range r.Violations {
		if !slices.Contains(out, v.Rule) {
			out = append(out, v.Rule)
		}
	}
	slices.Sort(out)
	return out
}

const seeds, messages = 40, 80

func TestValidHistoriesPass(t *testing.T) {
	t.Parallel()
	kills, again := 0, 0
	for seed := range uint64(seeds) {
		r := history.Check(newWorld(seed).history(messages), options())
		require.Empty(t, r.Violations, "seed %d: %v", seed, r)
		require.Equal(t, messages, r.Published)
		require.Equal(t, messages, r.Handled+r.Buried)
		kills += r.Faults
		again += r.Repeats
	}
	require.Greater(t, kills, seeds)
	require.Positive(t, again, "no message was done twice after a kill: the histories are too tame")
}

// mutation breaks one rule in a valid history.
type mutation struct {
	name string
	rule string
	also []string // rules that the same fault may break
	do   func(r *rand.Rand, events []history.Event, o *history.Options) []history.Event
}

// some picks an event of a kind, of a message that was handled at its only run.
func some(r *rand.Rand, events []history.Event, k history.Kind) int {
	for {
		i := r.IntN(len(events))
		if id := events[i].ID; events[i].Kind == k && events[i].Topic == topic &&
			count(events, id, history.Started) == 1 && count(events, id, history.Done) == 1 && count(events, id, history.Acked) == 1 {
			return i
		}
	}
}

func count(events []history.Event, id string, k history.Kind) int {
	n := 0
	for _, e := range events {
		if e.ID == id && e.Kind == k {
			n++
		}
	}
	return n
}

func find(events []history.Event, id string, k history.Kind) int {
	return slices.IndexFunc(events, func(e history.Event) bool { return e.ID == id && e.Kind == k && e.Topic == topic })
}

// insert puts events in right after i.
func insert(events []history.Event, i int, kinds ...history.Kind) []history.Event {
	for n, k := range kinds {
		e := events[i]
		e.Kind, e.At = k, e.At.Add(time.Duration(n+1)*time.Microsecond)
		events = append(events, e)
	}
	return events
}

func mutations() []mutation {
	last := func(events []history.Event) history.Event { return events[len(events)-1] }
	return []mutation{
		{"a message is not delivered", "R1", nil, func(r *rand.Rand, events []history.Event, _ *history.Options) []history.Event {
			id := events[some(r, events, history.Done)].ID
			return slices.DeleteFunc(events, func(e history.Event) bool { return e.ID == id && e.Proc != "publisher" })
		}},
		{"a run has no end", "R1", []string{"R5", "R7"}, func(r *rand.Rand, events []history.Event, _ *history.Options) []history.Event {
			i := some(r, events, history.Done)
			return slices.Delete(events, i, i+1)
		}},
		{"a dead letter is not published", "R1", []string{"R5", "R7"}, func(_ *rand.Rand, events []history.Event, _ *history.Options) []history.Event {
			id := events[slices.IndexFunc(events, func(e history.Event) bool { return e.Topic == dead })].ID
			return slices.DeleteFunc(events, func(e history.Event) bool { return e.ID == id && e.Topic == dead && e.Kind == history.Published })
		}},
		{"a message is left", "R1", nil, func(r *rand.Rand, events []history.Event, o *history.Options) []history.Event {
			o.Left = []string{events[some(r, events, history.Done)].ID}
			return events
		}},
		{"a message comes from nowhere", "R2", nil, func(_ *rand.Rand, events []history.Event, _ *history.Options) []history.Event {
			e := last(events)
			e.ID, e.Kind = "", history.Delivered
			return append(events, e)
		}},
		{"a body is another", "R2", nil, func(r *rand.Rand, events []history.Event, _ *history.Options) []history.Event {
			events[some(r, events, history.Delivered)].Body = history.BodyOf(nil)
			return events
		}},
		{"a handler gets another body", "R2", nil, func(r *rand.Rand, events []history.Event, _ *history.Options) []history.Event {
			events[some(r, events, history.Started)].Body = history.BodyOf([]byte{})
			return events
		}},
		{"a message runs again", "R4", nil, func(r *rand.Rand, events []history.Event, _ *history.Options) []history.Event {
			e := events[some(r, events, history.Acked)]
			e.At, e.Proc, e.Hand = last(events).At.Add(time.Second), "worker-1000", 1
			return insert(append(events, e), len(events), history.Started, history.Done)
		}},
		{"an ack is forgotten", "R4", nil, func(r *rand.Rand, events []history.Event, _ *history.Options) []history.Event {
			e := events[some(r, events, history.Acked)]
			kill := history.Event{Kind: history.Killed, Proc: e.Proc, At: last(events).At.Add(time.Second)}
			e.At, e.Proc, e.Hand = kill.At.Add(time.Second), "worker-1000", 1
			events = append(events, kill, e)
			return insert(events, len(events)-1, history.Started, history.Done)
		}},
		{"a message overtakes", "R5", nil, func(r *rand.Rand, events []history.Event, _ *history.Options) []history.Event {
			for {
				i, j := some(r, events, history.Done), some(r, events, history.Done)
				if i < j && events[i].Key == events[j].Key {
					// The later one has its whole way before the earlier one.
					early := events[find(events, events[i].ID, history.Delivered)].At
					for n, k := range []history.Kind{history.Delivered, history.Started, history.Done, history.Acking, history.Acked} {
						events[find(events, events[j].ID, k)].At = early.Add(time.Duration(n-10) * time.Microsecond)
					}
					return events
				}
			}
		}},
		{"a message starts too soon", "R5", nil, func(r *rand.Rand, events []history.Event, _ *history.Options) []history.Event {
			for {
				i, j := some(r, events, history.Done), some(r, events, history.Started)
				if i < j && events[i].Key == events[j].Key {
					began := events[find(events, events[i].ID, history.Started)].At
					events[find(events, events[j].ID, history.Delivered)].At = began
					events[j].At = began.Add(time.Microsecond)
					return events
				}
			}
		}},
		{"a message runs twice at once", "R6", []string{"R4"}, func(r *rand.Rand, events []history.Event, _ *history.Options) []history.Event {
			e := events[some(r, events, history.Started)]
			e.Proc, e.Hand = "worker-1000", 1
			events = append(events, e)
			return insert(events, len(events)-1, history.Started, history.Done)
		}},
		{"an ack comes first", "R7", nil, func(r *rand.Rand, events []history.Event, _ *history.Options) []history.Event {
			i := some(r, events, history.Done)
			events[find(events, events[i].ID, history.Acking)].At = events[i].At.Add(-time.Microsecond)
			return events
		}},
		{"a commit is too high", "R7", nil, func(r *rand.Rand, events []history.Event, _ *history.Options) []history.Event {
			e := events[some(r, events, history.Started)]
			e.Kind, e.Offset, e.At = history.Committed, e.Offset+1, e.At.Add(time.Microsecond)
			return append(events, e)
		}},
	}
}

// TestMutationsAreFound: each fault is found by its rule, in every history.
func TestMutationsAreFound(t *testing.T) {
	t.Parallel()
	for _, m := range mutations() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(seeds) {
				o := options()
				events := m.do(rand.New(rand.NewPCG(seed, 2)), newWorld(seed).history(messages), &o)
				r := history.Check(events, o)
				require.Contains(t, rules(r), m.rule, "seed %d: %v", seed, r)
				require.Subset(t, append(m.also, m.rule), rules(r), "seed %d: %v", seed, r)
			}
		})
	}
}

func TestAllowances(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_700_000_000, 0)
	step := func(proc string, hand int64, k history.Kind) history.Event {
		at = at.Add(time.Millisecond)
		return history.Event{At: at, Proc: proc, Kind: k, ID: "m", Topic: topic, Hand: hand, Body: body("m")}
	}
	run := func(proc string, hand int64) []history.Event {
		return []history.Event{
			step(proc, hand, history.Delivered), step(proc, hand, history.Started), step(proc, hand, history.Done),
			step(proc, hand, history.Acking), step(proc, hand, history.Acked),
		}
	}
	twice := func(first, between history.Kind) []history.Event {
		events := []history.Event{step("p", 0, history.Publishing), step("p", 0, first)}
		events = append(events, run("a", 1)...)
		if between != "" {
			events = append(events, step("a", 0, between), step("a", 0, history.Healed))
		}
		return append(events, run("b", 1)...)
	}
	check := func(events []history.Event, o history.Options) []string { return rules(history.Check(events, o)) }

	require.Equal(t, []string{"R4"}, check(twice(history.Published, ""), history.Options{}))
	require.Equal(t, []string{"R4"}, check(twice(history.Published, history.Ended), history.Options{}), "a clean end")
	require.Equal(t, []string{"R4"}, check(twice(history.Published, history.Fault), history.Options{}), "an ack that was taken")
	require.Empty(t, check(twice(history.Published, history.Fault), history.Options{Forgets: 1}))
	require.Empty(t, check(twice(history.Published, history.Killed), history.Options{Forgets: 1}))
	require.Empty(t, check(twice(history.Published, history.Killed), history.Options{Async: true}))
	require.Empty(t, check(twice(history.MaybeLost, ""), history.Options{}), "it may have been published twice")

	unknown := slices.DeleteFunc(twice(history.Published, history.Killed), func(e history.Event) bool { return e.Kind == history.Acked })
	for _, e := range slices.Clone(unknown) {
		if e.ID = "n"; e.Kind != history.Killed && e.Kind != history.Healed {
			e.Body = body("m")
			unknown = append(unknown, e)
		}
	}
	require.Empty(t, check(unknown, history.Options{Bound: 2}))
	require.Equal(t, []string{"R4"}, check(unknown, history.Options{Bound: 1}), "two messages ran again at one kill")

	never := []history.Event{step("p", 0, history.Publishing), step("p", 0, history.MaybeLost)}
	require.Empty(t, check(never, history.Options{}), "nobody knows of it")
	never = append(never, step("p", 0, history.Published))
	require.Equal(t, []string{"R1"}, check(never, history.Options{}))
	require.Contains(t, history.Check(never, history.Options{}).String(), "never delivered: the broker's fault")
}
