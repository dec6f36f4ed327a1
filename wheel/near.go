package wheel

import (
	"math/bits"

	"github.com/pawl-lock/pawl/internal/clock"
)

// nearRing holds the timers due within the next ticks, one bucket per grain: a
// small timing wheel of its own, turned by one runtime timer. The ring is larger
// than nearSpan, so a bucket only ever holds timers of one grain.
type nearRing struct {
	buckets [nearSize]timerList
	// used has a bit for every bucket that may hold a timer. A cancelled timer
	// leaves its bit; next clears it.
	used [nearSize / 64]uint64
}

const (
	nearSize = 1024
	nearMask = nearSize - 1
)

func (r *nearRing) reset() {
	for i := range r.buckets {
		r.buckets[i].reset()
	}
}

func (r *nearRing) push(t *Timer, grain int64) {
	i := grain & nearMask
	r.buckets[i].push(t)
	r.used[i/64] |= 1 << (i % 64)
}

// next returns the first grain after the given one whose bucket holds timers. It clears the
// bits of those before it whose timers were all cancelled: most are, and each would have the
// ring turned for nothing.
func (r *nearRing) next(after int64) (grain int64, ok bool) {
	for d := int64(1); d <= nearSize; {
		i := (after + d) & nearMask
		word := r.used[i/64] >> (i % 64)
		if word == 0 {
			d += 64 - i%64
			continue
		}
		d += int64(bits.TrailingZeros64(word))
		i = (after + d) & nearMask
		if !r.buckets[i].empty() {
			return after + d, d <= nearSize
		}
		r.used[i/64] &^= 1 << (i % 64)
	}
	return 0, false
}

// turnPart moves those timers of one grain to due whose instant has come.
func (r *nearRing) turnPart(grain int64, now clock.Instant, due *timerList) {
	bucket := &r.buckets[grain&nearMask]
	for t := bucket.root.next; t != &bucket.root; {
		next := t.next
		if t.at <= now {
			t.unlink()
			due.push(t)
		}
		t = next
	}
}

// turn moves the timers of all grains in (from, to] to due, in order.
func (r *nearRing) turn(from, to int64, due *timerList) {
	for {
		grain, ok := r.next(from)
		if !ok || grain > to {
			return
		}
		i := grain & nearMask
		r.buckets[i].moveTo(due)
		r.used[i/64] &^= 1 << (i % 64)
	}
}
