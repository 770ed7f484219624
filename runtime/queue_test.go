package runtime

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/leat-io/leat/runtime/transport"
)

// TestQueue drives a queue and a model of it alike, through arrivals, runs,
// failures, waits, slow confirms, revocations, redeliveries and drains.
func TestQueue(t *testing.T) {
	t.Parallel()
	for _, order := range []transport.Order{transport.OrderKey, transport.OrderPartition, transport.OrderNone} {
		t.Run(string(order), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				m := newModel(t, order)
				actions := map[string]func(*rapid.T){"": m.check}
				for _, a := range []struct {
					name   string
					weight int
					do     func(*rapid.T)
				}{
					{"own", 2, m.own},
					{"receive", 4, m.receive},
					{"receive once more", 4, func(t *rapid.T) { m.receiveAgain(t, m.pickSpell(t, m.spells)) }},
					{"receive after the end", 1, m.receiveLate},
					{"take", 4, func(t *rapid.T) {
						for range rapid.IntRange(1, 4).Draw(t, "slots") {
							m.take(t)
						}
					}},
					{"return", 2, m.returned},
					{"finish", 3, func(t *rapid.T) { m.finish(t, m.pick(t, running, closing), true) }},
					{"give up", 2, func(t *rapid.T) { m.finish(t, m.pick(t, running, closing), false) }},
					{"fail", 3, m.fail},
					{"wake", 2, func(t *rapid.T) { m.wake(m.pick(t, parked)) }},
					{"leave", 1, func(t *rapid.T) { m.withdraw(t, m.pickSpell(t, m.spells), false) }},
					{"revoke", 2, func(t *rapid.T) { m.withdraw(t, m.pickSpell(t, m.spells), true) }},
					{"revoke what is over", 1, func(t *rapid.T) { m.withdraw(t, m.pickSpell(t, m.ended), true) }},
					{"lose the connection", 2, m.loseAll},
					{"shed", 3, m.shed},
					{"reopen", 1, m.reopen},
				} {
					for i := range a.weight {
						actions[fmt.Sprint(a.name, strings.Repeat(" ", i))] = a.do
					}
				}
				for range 4 {
					t.Repeat(actions)
				}
				m.runOut(t)
			})
		})
	}
}
