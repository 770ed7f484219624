package kafka

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"pgregory.net/rapid"
)

// drawAhead makes one whose lowest open offset is the committed one, as every
// commit has it.
func drawAhead(t *rapid.T) *ahead {
	a := &ahead{
		topic:  kadm.TopicID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "topic")),
		epoch:  rapid.Int32Range(-1, 1<<30).Draw(t, "epoch"),
		offset: rapid.Int64Range(0, 1<<50).Draw(t, "offset"),
	}
	gap := rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(0, 1<<40))
	a.open = append(a.open, a.offset)
	for range rapid.IntRange(0, 3000).Draw(t, "open") {
		a.open = append(a.open, a.open[len(a.open)-1]+1+gap.Draw(t, "gap"))
	}
	a.top = a.open[len(a.open)-1] + 1 + rapid.Int64Range(1, 1<<40).Draw(t, "rest")
	return a
}

// TestAhead: what is read is what was written, and of what does not fit
// nothing is said to be done that is not.
func TestAhead(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := drawAhead(t)
		limit := rapid.OneOf(rapid.Just(4096), rapid.IntRange(0, 200)).Draw(t, "limit")
		text := a.encode(limit)
		require.LessOrEqual(t, len(text), limit)
		got := decodeAhead(text)
		if got == nil {
			require.Less(t, limit, 200, "there is room for some")
			return
		}
		require.True(t, got.fits(a.topic, a.offset))
		require.False(t, got.fits(a.topic, a.offset+1), "a position set by hand")
		require.False(t, got.fits(kadm.TopicID{1}, a.offset), "a topic made again")
		require.Equal(t, a.epoch, got.epoch)
		require.Equal(t, a.open[:len(got.open)], got.open)
		if len(got.open) == len(a.open) {
			require.Equal(t, a, got)
		} else {
			require.Equal(t, a.open[len(got.open)], got.top, "as much as fits")
			require.Greater(t, len(text), limit-40)
		}
		at := rapid.Int64Range(a.offset-10, a.top+10).Draw(t, "at")
		require.Equal(t, at >= a.offset && at < got.top && !slices.Contains(got.open, at), got.has(at))
		require.Equal(t, got.top-a.offset-int64(len(got.open)), got.done(a.offset, got.top))
	})
}

// TestAheadOfOthers: whatever another client or a person has written there is
// no harm.
func TestAheadOfOthers(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "member-1", "leat2:AAAA", "leat1:", "leat1:%%%", "leat1:AAAA", "leat1:" + strings.Repeat("A", 40)} {
		a := decodeAhead(text)
		require.False(t, a.has(0), text)
		if a != nil {
			require.Empty(t, a.open, text)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		b := []byte(drawAhead(t).encode(4096))
		for range rapid.IntRange(1, 5).Draw(t, "bytes") {
			b[rapid.IntRange(len(aheadPrefix), len(b)-1).Draw(t, "at")] = "Aq9+/z"[rapid.IntRange(0, 5).Draw(t, "byte")]
		}
		if a := decodeAhead(string(b)); a != nil {
			require.LessOrEqual(t, len(a.open), maxOpen)
			a.has(a.offset)
			a.done(0, 1<<62)
		}
	})
}

// FuzzAhead is for texts that are nearly right.
func FuzzAhead(f *testing.F) {
	a := &ahead{topic: kadm.TopicID{1}, epoch: 3, offset: 100, open: []int64{100, 101, 150}, top: 200}
	f.Add(a.encode(4096))
	f.Fuzz(func(t *testing.T, text string) {
		if a := decodeAhead(text); a != nil {
			require.LessOrEqual(t, len(a.open), maxOpen)
			require.GreaterOrEqual(t, a.top, a.offset)
		}
	})
}
