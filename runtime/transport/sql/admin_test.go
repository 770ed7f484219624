package sql_test

import (
	"context"
	stdsql "database/sql"
	"os"
	"strconv"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/sql"
)

// publishMany publishes n messages to a topic that groups read.
func publishMany(t *testing.T, tr *sql.Transport, n int, groups ...string) {
	t.Helper()
	for _, g := range groups {
		require.NoError(t, tr.Declare(t.Context(), transport.TopologyDeclare, transport.Declaration{Topic: topicName, Group: g}))
	}
	p, err := tr.OpenProducer(t.Context())
	require.NoError(t, err)
	msgs := make([]*message.Message, n)
	for i := range msgs {
		msgs[i] = message.NewMessage(strconv.Itoa(i), nil)
	}
	require.NoError(t, p.Publish(t.Context(), topicName, msgs...))
	require.NoError(t, p.Close(t.Context()))
}

func rowsOf(t *testing.T, b *broker, query string) (n int) {
	t.Helper()
	db, err := stdsql.Open("sqlite", b.path)
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, db.QueryRowContext(t.Context(), query).Scan(&n))
	return n
}

func TestGroupsListAndDrop(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tr := b.open(briefly)
	const many = 12_000 // more than two batches
	publishMany(t, tr, many, "one", "two")

	groups, err := tr.Groups(t.Context())
	require.NoError(t, err)
	require.Len(t, groups, 2)
	require.Equal(t, "one", groups[0].Group)
	require.EqualValues(t, many, groups[0].Depth.Ready)
	require.False(t, groups[0].Depth.Oldest.IsZero())
	require.Empty(t, groups[0].Members)

	c, err := tr.OpenConsumer(t.Context(), transport.ConsumerConfig{
		Topics: []string{topicName}, Group: "one", Instance: transport.Instance{ID: "alive"}, Prefetch: 1, PrefetchBytes: 1, Span: 1, Base: context.WithoutCancel(t.Context()),
	})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		groups, err := tr.Groups(t.Context())
		return err == nil && len(groups[0].Members) == 1 && groups[0].Members[0] == "alive"
	}, waitFor, tickFor)
	err = tr.DropGroup(t.Context(), topicName, "one")
	var used *transport.GroupInUseError
	require.ErrorAs(t, err, &used)
	require.ErrorContains(t, err, `is read by alive: stop them first`)
	require.Equal(t, many, rowsOf(t, b, "SELECT count(*) FROM leat_deliveries d JOIN leat_groups g ON g.id = d.group_id WHERE g.name = 'one'"))
	require.NoError(t, c.Close(t.Context()))

	require.NoError(t, tr.DropGroup(t.Context(), topicName, "one"))
	require.Equal(t, many, rowsOf(t, b, "SELECT count(*) FROM leat_deliveries"), "those of the other group stay")
	require.Equal(t, many, rowsOf(t, b, "SELECT count(*) FROM leat_messages"))
	require.Equal(t, 8, rowsOf(t, b, "SELECT count(*) FROM leat_partitions"))
	groups, err = tr.Groups(t.Context())
	require.NoError(t, err)
	require.Len(t, groups, 1)

	require.ErrorIs(t, tr.DropGroup(t.Context(), topicName, "one"), transport.ErrNoGroup)
	require.ErrorIs(t, tr.DropGroup(t.Context(), "none", "one"), transport.ErrNoGroup)
}

// TestDropGroupOfAKilledMember: it is dropped once the lease has run out.
func TestDropGroupOfAKilledMember(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tr := b.open(briefly)
	publishMany(t, tr, 3, groupName)
	c, err := b.elsewhere(briefly).OpenConsumer(t.Context(), transport.ConsumerConfig{
		Topics: []string{topicName}, Group: groupName, Instance: transport.Instance{ID: "killed"}, Prefetch: 1, PrefetchBytes: 1, Span: 1, Base: context.WithoutCancel(t.Context()),
	})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		groups, err := tr.Groups(t.Context())
		return err == nil && len(groups[0].Members) == 1
	}, waitFor, tickFor)
	sql.Kill(c)
	require.Error(t, tr.DropGroup(t.Context(), topicName, groupName))
	require.Eventually(t, func() bool { return tr.DropGroup(t.Context(), topicName, groupName) == nil }, waitFor, tickFor)
	require.Zero(t, rowsOf(t, b, "SELECT count(*) FROM leat_members"))
}

// TestDropGroupWhilePublished leaves nothing of the group behind.
func TestDropGroupWhilePublished(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tr := b.open()
	publishMany(t, tr, 6_000, groupName)
	p, err := b.elsewhere().OpenProducer(t.Context())
	require.NoError(t, err)
	stop, stopped := make(chan struct{}), make(chan error)
	go func() {
		var err error
		for err == nil {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
				err = p.Publish(t.Context(), topicName, message.NewMessage("later", nil))
			}
		}
		stopped <- err
	}()
	require.NoError(t, tr.DropGroup(t.Context(), topicName, groupName))
	close(stop)
	require.NoError(t, <-stopped)
	require.NoError(t, p.Close(t.Context()))
	require.Zero(t, rowsOf(t, b, "SELECT count(*) FROM leat_deliveries"))
	require.Zero(t, rowsOf(t, b, "SELECT count(*) FROM leat_groups"))
}

func TestMigrator(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tr := b.open()
	pending, err := tr.Pending(t.Context())
	require.NoError(t, err)
	require.Len(t, pending, 1)
	require.Equal(t, "00001_leat.sql", pending[0].Name)
	require.Contains(t, pending[0].SQL, "CREATE TABLE leat_topics")
	require.NotContains(t, pending[0].SQL, "goose")
	complaints, err := tr.Check(t.Context())
	require.NoError(t, err)
	require.Empty(t, complaints)
	require.NoFileExists(t, b.path, "nothing is created by looking")
	_, err = tr.Groups(t.Context())
	require.ErrorContains(t, err, "does not exist")
	require.NoFileExists(t, b.path)

	require.NoError(t, tr.Migrate(t.Context()))
	require.NoError(t, tr.Migrate(t.Context()))
	pending, err = tr.Pending(t.Context())
	require.NoError(t, err)
	require.Empty(t, pending)
}

// TestCheckFindsDamage writes over pages of a table in use.
func TestCheckFindsDamage(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tr := b.open()
	publishMany(t, tr, 5_000, groupName)
	complaints, err := tr.Check(t.Context())
	require.NoError(t, err)
	require.Empty(t, complaints)
	require.NoError(t, tr.Close(t.Context()))

	f, err := os.OpenFile(b.path, os.O_RDWR, 0)
	require.NoError(t, err)
	info, err := f.Stat()
	require.NoError(t, err)
	junk := make([]byte, 4096)
	for i := range junk {
		junk[i] = 0xff
	}
	_, err = f.WriteAt(junk, info.Size()/4096/2*4096)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	complaints, err = b.open().Check(t.Context())
	if err != nil {
		require.ErrorContains(t, err, "is damaged")
		return
	}
	require.NotEmpty(t, complaints)
	require.Less(t, len(complaints), 25)
}
