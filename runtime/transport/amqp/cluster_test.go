package amqp_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/internal/brokertest"
	"github.com/leat-io/leat/runtime/transport/history"
)

// TestCluster hurts nodes of a cluster of three, one case after the other,
// while one publishes and two consume.
//
//nolint:paralleltest,tparallel // they would hurt each other's
func TestCluster(t *testing.T) {
	t.Parallel()
	own := brokertest.Start(t, "rabbitmq3")
	leader, left := nodesOf()[0], nodesOf()[1]

	t.Run("leader killed", func(t *testing.T) {
		c := newCluster(t, own, leader)
		at, beside := c.work("at the leader", leader), c.work("beside it", left)
		c.flows("before")
		require.Equal(t, leader, c.leader(left))
		c.during("the leader is killed", func() { own.Kill(leader) })
		require.Contains(t, at.said.String(), "broker "+c.address(leader), "it was there")
		require.NotContains(t, beside.said.String(), "broker "+c.address(leader), "it was not")
		require.NotEqual(t, leader, c.leader(left))
		own.Up(leader)
		c.judge()
	})
	t.Run("killed again and again", func(t *testing.T) {
		c := newCluster(t, own, leader)
		c.work("at the leader", leader)
		c.work("beside it", left)
		c.flows("before")
		kills := nodesOf()[:2]
		if soaking() {
			kills = slices.Repeat(nodesOf(), 10)
		}
		for _, node := range kills {
			c.during(node+" is killed", func() { own.Kill(node) })
			own.Up(node)
			c.flows("with " + node + " again")
		}
		c.judge()
	})
	t.Run("majority killed", func(t *testing.T) {
		c := newCluster(t, own, leader)
		c.work("at the leader", leader)
		c.work("beside it", left)
		c.flows("before")
		gone := others(left)
		c.during("two are killed", func() {
			own.Kill(gone...)
			failed := len(c.failed())
			c.eventually("publishes fail", func() bool {
				return slices.ContainsFunc(c.failed()[failed:], func(text string) bool {
					return strings.Contains(text, "no confirmation within "+clusterTimeout.String())
				})
			})
			for _, node := range gone {
				own.Up(node)
			}
		})
		c.judge()
	})
	t.Run("leader frozen", func(t *testing.T) {
		if !soaking() {
			t.Skip("the nodes may take a minute to get over it: LEAT_SOAK=1 has it")
		}
		c := newCluster(t, own, leader)
		c.work("at the leader", leader)
		c.work("beside it", left)
		c.flows("before")
		c.log.Add(history.Event{Kind: history.Fault, Text: "the leader is frozen"})
		own.Pause(leader)
		c.flows("without it")
		own.Resume(leader)
		c.flows("with it again")
		c.log.Add(history.Event{Kind: history.Healed})
		c.judge()
	})
}
