package kafka_test

import (
	"os/exec"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/kafka"
)

// groups are those of a topic.
func (w *world) groups(tr *kafka.Transport, topic string) []transport.GroupInfo {
	w.t.Helper()
	all, err := tr.Groups(within(w.t))
	require.NoError(w.t, err)
	return slices.DeleteFunc(all, func(g transport.GroupInfo) bool { return g.Topic != topic })
}

// TestGroupsListAndDrop: a group is listed with what waits and who reads, is
// not dropped while it is read, and with one topic keeps its others.
func TestGroupsListAndDrop(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"classic", "consumer"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			each(t, 2, func(w *world) {
				t := w.t
				w.o.GroupProtocol = protocol
				if protocol == "consumer" {
					w.o.SessionTimeout = 0
				}
				tr := w.connect()
				w.put(0, values("m", 10)...)
				w.put(1, values("n", 5)...)
				c := w.join(tr)
				ds := w.receive(c, 15)
				var acked []*transport.Delivery
				for _, d := range ds {
					if d.Partition == 0 && d.Offset > 0 { // all but the first, which is done ahead of it
						acked = append(acked, d)
					}
				}
				settle(t, c, transport.Ack, acked...)
				made, err := w.adm.CreateTopic(within(t), 1, -1, nil, w.topic+"-other")
				require.NoError(t, err, made.ErrMessage)
				reader := w.group + "-reader"
				at := kadm.Offsets{}
				at.AddOffset(w.topic+"-other", 0, 0, -1)
				at.AddOffset(w.topic, 0, 4, -1)
				at.AddOffset(w.topic, 1, 0, -1)
				eventually(t, "the coordinator knows the new topic", func() bool { return w.adm.CommitAllOffsets(t.Context(), reader, at) == nil })

				got := w.groups(tr, w.topic)
				require.Len(t, got, 2)
				require.Equal(t, w.group, got[0].Group)
				require.EqualValues(t, 6, got[0].Depth.Ready)
				require.Len(t, got[0].Members, 1)
				require.Equal(t, transport.GroupInfo{Topic: w.topic, Group: reader, Depth: transport.Depth{Ready: 11}}, got[1])

				err = tr.DropGroup(within(t), w.topic, w.group)
				var used *transport.GroupInUseError
				require.ErrorAs(t, err, &used)
				require.Equal(t, got[0].Members, used.Members)
				require.Len(t, w.groups(tr, w.topic), 2)

				require.NoError(t, tr.DropGroup(within(t), w.topic, reader))
				require.Len(t, w.groups(tr, w.topic), 1)
				require.Len(t, w.groups(tr, w.topic+"-other"), 1, "of another topic it is there still")
				require.ErrorIs(t, tr.DropGroup(within(t), w.topic, reader), transport.ErrNoGroup)
				require.NoError(t, tr.DropGroup(within(t), w.topic+"-other", reader))
				require.Empty(t, w.groups(tr, w.topic+"-other"))

				require.NoError(t, c.Close(within(t)))
				require.NoError(t, tr.DropGroup(within(t), w.topic, w.group))
				require.Empty(t, w.groups(tr, w.topic))
				require.ErrorIs(t, tr.DropGroup(within(t), "no-such-topic", w.group), transport.ErrNoGroup)

				next := w.join(w.connect()) // a group of this name begins anew
				require.Len(t, w.receive(next, 15), 15)
			})
		})
	}
}

// TestGroupsOfStaticMembers are listed by their names.
func TestGroupsOfStaticMembers(t *testing.T) {
	t.Parallel()
	w, _ := fake(t, 1)
	tr := w.connect()
	c := w.join(tr, static)
	got := w.groups(tr, w.topic)
	require.Len(t, got, 1)
	require.Equal(t, []string{"pod-0"}, got[0].Members)
	require.NoError(t, c.Close(within(t)))
	require.ErrorContains(t, tr.DropGroup(within(t), w.topic, w.group), "pod-0", "it stays in the group for its next process")
}

// TestGroupsCommand: what the worker's command prints of groups, and drops.
func TestGroupsCommand(t *testing.T) {
	t.Parallel()
	w, _ := fake(t, 1)
	exe, err := binary()
	require.NoError(t, err)
	groups := func(args ...string) (string, error) {
		out, err := exec.CommandContext(within(t), exe, slices.Concat([]string{"groups"}, args, []string{"--broker", "kafka://" + w.o.Brokers[0]})...).CombinedOutput()
		return string(out), err
	}
	c := w.join(w.connect(), static)
	w.put(0, values("m", 3)...)
	settle(t, c, transport.Ack, w.receive(c, 1)...)
	out, err := groups("list")
	require.NoError(t, err, out)
	require.Regexp(t, w.topic+` +`+w.group+` +2 +0 +- +pod-0`, out)
	out, err = groups("drop", "--yes", w.group, "--topic", w.topic)
	require.Error(t, err)
	require.Contains(t, out, "is read by pod-0")
	out, err = groups("drop", "--yes", "nobody", "--topic", w.topic)
	require.Error(t, err)
	require.Contains(t, out, `group "nobody" of topic "`+w.topic+`": there is no such group`)

	at := kadm.Offsets{}
	at.AddOffset(w.topic, 0, 1, -1)
	require.NoError(t, w.adm.CommitAllOffsets(within(t), "old", at))
	out, err = groups("drop", "--yes", "old", "--topic", w.topic)
	require.NoError(t, err, out)
	require.Equal(t, "dropped group old of topic "+w.topic+"\n", out)
	out, err = groups("list")
	require.NoError(t, err, out)
	require.NotContains(t, out, "old")
}
