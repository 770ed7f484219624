package history_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/leat-io/leat/runtime/transport/history"
)

// world makes histories in which no rule is broken: workers that handle
// messages of a few keys, fail, bury, give back and are killed.
type world struct {
	*rand.Rand

	events  []history.Event
	now     time.Time
	workers []string
	born    int
	hands   int64
	waiting map[string][]string // ids by key, as they were published
	held    []*holding
}

type holding struct {
	e     history.Event // who holds what
	left  int           // failures to come
	dies  bool          // and then it is buried
	state int
}

const topic, dead = "t", "t--g--dead"

func newWorld(seed uint64) *world {
	w := &world{Rand: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(1_700_000_000, 0), waiting: map[string][]string{}}
	for range 3 {
		w.bear()
	}
	return w
}

func (w *world) bear() {
	w.born++
	w.workers = append(w.workers, fmt.Sprint("worker-", w.born))
}

func (w *world) add(e history.Event, k history.Kind) {
	w.now = w.now.Add(time.Millisecond)
	e.At, e.Kind = w.now, k
	w.events = append(w.events, e)
}

func body(id string) string { return history.BodyOf([]byte("body of " + id)) }

// history runs the world until n messages are done with.
func (w *world) history(n int) []history.Event {
	published := 0
	for published < n || len(w.held) > 0 || len(w.keys()) > 0 {
		switch p := w.IntN(100); {
		case p < 25 && published < n:
			w.publish(fmt.Sprint("m-", published))
			published++
		case p < 50:
			w.deliver()
		case p < 97 && len(w.held) > 0:
			w.step(w.held[w.IntN(len(w.held))])
		case p >= 99:
			w.kill()
		}
	}
	return w.events
}

func (w *world) publish(id string) {
	e := history.Event{Proc: "publisher", ID: id, Key: fmt.Sprint("k", w.IntN(5)), Topic: topic, Body: body(id)}
	w.add(e, history.Publishing)
	w.add(e, history.Published)
	w.waiting[e.Key] = append(w.waiting[e.Key], id)
}

// keys are those that have a message to be delivered and none held.
func (w *world) keys() []string {
	var keys []string
	for k, ids := range w.waiting {
		if len(ids) > 0 && !slices.ContainsFunc(w.held, func(h *holding) bool { return h.e.Key == k }) {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

func (w *world) deliver() {
	keys := w.keys()
	if len(keys) == 0 {
		return
	}
	key := keys[w.IntN(len(keys))]
	id := w.waiting[key][0]
	w.waiting[key] = w.waiting[key][1:]
	w.hands++
	var n int // its fate
	_, _ = fmt.Sscanf(id, "m-%d", &n)
	h := &holding{
		e:    history.Event{Proc: w.workers[w.IntN(3)], ID: id, Key: key, Topic: topic, Hand: w.hands, Offset: int64(n), Body: body(id)},
		left: max(0, n%7-4), dies: n%10 == 3,
	}
	w.add(h.e, history.Delivered)
	w.held = append(w.held, h)
}

// step takes a message one step further.
func (w *world) step(h *holding) {
	h.state++
	switch h.state {
	case 1:
		if w.IntN(20) == 0 {
			w.add(h.e, history.Returned)
			w.drop(h, true)
			return
		}
		w.add(h.e, history.Started)
	case 2:
		switch {
		case h.left > 0:
			h.left--
			w.add(h.e, history.Failed)
			h.state = 0
		case h.dies:
			w.add(h.e, history.Failed)
			e := h.e
			e.Topic = dead
			w.add(e, history.Publishing)
			w.add(e, history.Published)
		default:
			w.add(h.e, history.Done)
		}
	case 3:
		w.add(h.e, history.Acking)
	case 4:
		w.add(h.e, history.Acked)
		w.drop(h, false)
	}
}

func (w *world) drop(h *holding, again bool) {
	w.held = slices.DeleteFunc(w.held, func(o *holding) bool { return o == h })
	if again {
		w.waiting[h.e.Key] = slices.Insert(w.waiting[h.e.Key], 0, h.e.ID)
	}
}

func (w *world) kill() {
	i := w.IntN(3)
	proc := w.workers[i]
	w.add(history.Event{Proc: proc}, history.Killed)
	w.workers = slices.Delete(w.workers, i, i+1)
	w.bear()
	for _, h := range slices.Clone(w.held) {
		if h.e.Proc == proc {
			w.drop(h, true)
		}
	}
}
