package transport

import (
	"iter"
	"math/bits"
	"sort"
)

// Window tracks which offsets of one log are settled, for brokers that can be
// told only "everything below". Settled may come in any order; [Window.Mark]
// is always safe to tell: no unfinished offset lies below it.
//
// What is settled ahead of the mark is held as one bit each. Offsets may have
// gaps (compaction, control records): only those added count, and a wide gap
// costs no memory. A Window is not safe for concurrent use.
type Window struct {
	limit   int
	base    int64 // offset of bit 0 of the ring's first word
	known   ring  // offsets added
	settled ring  // of those, the settled ones
	mark    int64 // everything below is settled
	next    int64 // one above the highest offset added
	open    int   // added and not settled
	jumps   []jump
	passed  int64 // offsets without bits below base
}

// jump is a gap that has no bits.
type jump struct {
	from, to int64 // the first offset in it, and the first after it
	total    int64 // offsets without bits below to
}

// widest is the gap that has bits: as many as a jump takes.
const widest = 128

// NewWindow begins at offset start and holds up to limit offsets between the
// mark and the highest one, wide gaps not counted.
func NewWindow(start int64, limit int) *Window {
	return &Window{limit: limit, base: start &^ 63, mark: start, next: start}
}

// Add notes that an offset was handed out. It must be higher than all before.
func (w *Window) Add(offset int64) {
	if w.open == 0 && w.mark == w.next {
		w.mark = offset // the gap before it holds nothing to wait for
		w.base = offset &^ 63
		w.clear()
	} else if gap := offset - w.next; gap > widest {
		w.jumps = append(w.jumps, jump{w.next, offset, w.total(len(w.jumps)) + gap})
	}
	w.known.set(w.index(offset))
	w.next = offset + 1
	w.open++
}

// Settle notes that an offset is done with; it reports false for one that is
// not waited for.
func (w *Window) Settle(offset int64) bool {
	i := w.index(offset)
	if offset < w.mark || !w.known.get(i) || w.settled.get(i) {
		return false
	}
	w.settled.set(i)
	w.open--
	if offset == w.mark {
		w.advance()
	}
	return true
}

// Mark is the offset below which everything is settled.
func (w *Window) Mark() int64 { return w.mark }

// Open counts what was added and is not settled.
func (w *Window) Open() int { return w.open }

// Full tells whether the span between the mark and the highest offset has
// reached the limit.
func (w *Window) Full() bool { return w.index(w.next)-w.index(w.mark) >= int64(w.limit) }

// Done tells whether an offset is settled.
func (w *Window) Done(offset int64) bool {
	return offset < w.mark || w.settled.get(w.index(offset))
}

// Next is one above the highest offset that was added.
func (w *Window) Next() int64 { return w.next }

// Pending yields the offsets that were added and are not settled, lowest first.
func (w *Window) Pending() iter.Seq[int64] {
	return func(yield func(int64) bool) {
		for word := range int64(len(w.known.words)) {
			for left := w.known.word(word) &^ w.settled.word(word); left != 0; left &= left - 1 {
				if !yield(w.offset(word*64 + int64(bits.TrailingZeros64(left)))) {
					return
				}
			}
		}
	}
}

// index is the bit of an offset; negative if it has none.
func (w *Window) index(offset int64) int64 {
	if len(w.jumps) == 0 {
		return offset - w.base
	}
	n := sort.Search(len(w.jumps), func(i int) bool { return w.jumps[i].from > offset })
	if n > 0 && offset < w.jumps[n-1].to {
		return -1
	}
	return offset - w.base - w.total(n) + w.passed
}

// offset is whose bit it is.
func (w *Window) offset(index int64) int64 {
	at := w.base - w.passed + index
	n := sort.Search(len(w.jumps), func(i int) bool { return w.jumps[i].from-w.total(i) > at })
	return at + w.total(n)
}

// total counts the offsets without bits in the first n jumps and below them.
func (w *Window) total(n int) int64 {
	if n == 0 {
		return w.passed
	}
	return w.jumps[n-1].total
}

func (w *Window) clear() {
	w.known.clear()
	w.settled.clear()
	w.jumps, w.passed = w.jumps[:0], 0
}

// advance moves the mark over what is settled and over gaps, to the lowest
// offset that is known and unsettled, and lets go of the words passed.
func (w *Window) advance() {
	if w.open == 0 {
		w.mark = w.next
		w.base = w.next &^ 63
		w.clear()
		return
	}
	i := w.index(w.mark)
	for word := i / 64; ; word++ {
		left := w.known.word(word) &^ w.settled.word(word)
		if word == i/64 {
			left &= ^uint64(0) << (i % 64)
		}
		if left != 0 {
			w.mark = w.offset(word*64 + int64(bits.TrailingZeros64(left)))
			w.base = w.offset(word * 64)
			w.known.drop(word)
			w.settled.drop(word)
			for len(w.jumps) > 0 && w.jumps[0].to <= w.base {
				w.passed = w.jumps[0].total
				w.jumps = w.jumps[1:]
			}
			return
		}
	}
}

// ring is a growing row of bits whose first words can be let go.
type ring struct {
	words []uint64
}

func (r *ring) word(i int64) uint64 {
	if i < 0 || i >= int64(len(r.words)) {
		return 0
	}
	return r.words[i]
}

func (r *ring) get(i int64) bool { return i >= 0 && r.word(i/64)>>(i%64)&1 == 1 }

func (r *ring) set(i int64) {
	for int64(len(r.words)) <= i/64 {
		r.words = append(r.words, 0)
	}
	r.words[i/64] |= 1 << (i % 64)
}

func (r *ring) drop(words int64) {
	if words >= int64(len(r.words)) {
		r.words = r.words[:0]
		return
	}
	r.words = r.words[words:]
}

func (r *ring) clear() { r.words = r.words[:0] }
