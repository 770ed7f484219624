package sql_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leat-io/leat/runtime/transport"
	"github.com/leat-io/leat/runtime/transport/sql"
)

// smallDisk mounts a file system of that size. Where that is not allowed the
// test is skipped, but for CI.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size)
	if err != nil && os.Getenv("CI") == "" {
		t.Skipf("SKIPPED, and CI would fail: a tmpfs cannot be mounted here: %v", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, 0)) })
	return dir
}

// S1: on a full disk publishing fails and says so, nothing is acked that was
// not, nothing confirmed is lost, and it goes on once there is room.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t, "12m")
	ballast := filepath.Join(dir, "ballast")
	require.NoError(t, os.WriteFile(ballast, make([]byte, 4<<20), 0o600))
	b := &broker{t: t, path: filepath.Join(dir, "worker.db")}
	tr := b.open(func(o *sql.Options) { o.Lease = time.Hour }) // or a renewal that fails may end the consumer
	c, p := consume(t, tr), produce(t, tr)
	body := strings.Repeat("x", 10_000)
	left := map[string]bool{}
	var full error
	for i := 0; full == nil; i++ {
		require.Less(t, i, 5000)
		id := fmt.Sprint("m", i)
		if full = p.Publish(t.Context(), topicName, msg(id, id, body)); full == nil {
			left[id] = true
		}
	}
	require.ErrorContains(t, full, "full")
	require.NotContains(t, full.Error(), "no transaction is active")
	require.False(t, transport.Refused(full), "it can be mended while the worker runs: %v", full)
	require.NotEmpty(t, left)

	// What is there can still be read; whether it can be acked depends on what is left.
	held := receive(t, c, 20)
	refused := 0
	for _, d := range held {
		require.True(t, left[d.ID], d.ID)
		if err := c.Settle(t.Context(), []transport.Settlement{{Delivery: d, Verdict: transport.Ack}}); err != nil {
			require.False(t, transport.Refused(err), err)
			refused++
			continue
		}
		delete(left, d.ID)
	}
	t.Logf("%d of %d acks refused", refused, len(held))
	require.Equal(t, len(left), b.count("leat_messages"))
	b.sound(b.path)

	require.NoError(t, os.Remove(ballast))
	require.NoError(t, p.Publish(t.Context(), topicName, msg("room again", "", "")))
	left["room again"] = true
	settle(t, c, transport.Ack, held...)
	for _, d := range held {
		delete(left, d.ID)
	}
	for len(left) > 0 {
		ctx, cancel := context.WithTimeout(t.Context(), waitFor)
		ds, err := c.Receive(ctx, 100, 1<<20)
		cancel()
		require.NoError(t, err)
		for _, d := range ds {
			require.True(t, left[d.ID], d.ID)
			delete(left, d.ID)
		}
		settle(t, c, transport.Ack, ds...)
	}
	require.Zero(t, b.count("leat_messages"))
	b.sound(b.path)
}

// S6: a file system that was remounted read-only is a clear no.
func TestReadOnlyDisk(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t, "4m")
	b := &broker{t: t, path: filepath.Join(dir, "worker.db")}
	tr := b.open()
	p := produce(t, tr)
	publish(t, p, "m", 3)
	require.NoError(t, p.Close(t.Context()))
	require.NoError(t, tr.Close(t.Context()))
	require.NoError(t, syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
	for _, path := range []string{b.path, filepath.Join(dir, "none.db")} {
		for _, mode := range []transport.Topology{transport.TopologyDeclare, transport.TopologyVerify} {
			other := (&broker{t: t, path: path}).open()
			err := other.Declare(t.Context(), mode)
			require.Error(t, err)
			require.True(t, transport.Refused(err), "%s %s: %v", path, mode, err)
		}
	}
	require.NoError(t, syscall.Mount("", dir, "", syscall.MS_REMOUNT, ""))
	again := b.open()
	require.Len(t, receive(t, consume(t, again), 3), 3)
}

// S6: what becomes unwritable under a running worker is loud at once, for
// those who publish and for those who consume.
func TestTurnsUnwritable(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tr := b.open(briefly)
	c, p := consume(t, tr), produce(t, tr)
	publish(t, p, "m", 3)
	held := receive(t, c, 3)
	attributes := func(change string) error {
		for _, suffix := range []string{"", "-wal"} {
			if out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "chattr", change, b.path+suffix).CombinedOutput(); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
		}
		return nil
	}
	t.Cleanup(func() { _ = attributes("-i") })
	if err := attributes("+i"); err != nil {
		t.Skipf("SKIPPED: files cannot be made immutable here: %v", err)
	}
	err := p.Publish(t.Context(), topicName, msg("x", "", ""))
	require.Error(t, err)
	require.Error(t, c.Settle(t.Context(), []transport.Settlement{{Delivery: held[0], Verdict: transport.Ack}}))
	ctx, cancel := context.WithTimeout(t.Context(), waitFor)
	defer cancel()
	_, err = c.Receive(ctx, 1, 1<<20)
	require.ErrorContains(t, err, b.path)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	t.Log(err)

	require.NoError(t, attributes("-i"))
	require.NoError(t, p.Publish(t.Context(), topicName, msg("again", "", "")))
	require.NoError(t, c.Close(t.Context()))
	again := receive(t, consume(t, b.open(briefly)), 4)
	require.Len(t, ids(again), 4)
	require.WithinDuration(t, time.Now(), again[0].Enqueued, time.Hour)
}
