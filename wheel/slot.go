package wheel

import (
	"cmp"
	"slices"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

// slot holds the timers of one tick, and those on their way to a later one. It
// is one timer of the library, as long as it exists.
type slot struct {
	number int64 // first grain / tickGrains
	timers timerList
	alarm  alarm
}

// drainBatch bounds how long mu is held while a slot is emptied: about 20 µs.
const drainBatch = 256

// slotLocked returns the slot of a grain.
func (w *Wheel) slotLocked(grain int64) *slot {
	number := grain / tickGrains
	s := w.mu.slots[number]
	if s == nil {
		s = &slot{number: number}
		s.alarm.slot = s
		s.timers.reset()
		w.mu.slots[number] = s
		w.mu.era.queueLocked(&s.alarm)
	}
	return s
}

// leadLocked returns after how long from done the library is to fire the slot.
func (w *Wheel) leadLocked(s *slot) int64 {
	return s.number*tickGrains - slotLead - w.mu.done
}

// nearbyLocked reports that every grain of s is within the near ring. Only then
// may it be drained: none of its timers can come back to it.
func (w *Wheel) nearbyLocked(s *slot) bool {
	return s.number*tickGrains+tickGrains-1-w.mu.done < nearSpan
}

// drain empties a nearby slot. Calls for the same slot may overlap.
func (w *Wheel) drain(s *slot) {
	for w.drainSome(s) {
	}
}

func (w *Wheel) drainSome(s *slot) (more bool) {
	now := w.clock.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.closing || w.mu.slots[s.number] != s {
		return false
	}
	w.advanceLocked(now)
	for range drainBatch {
		if s.timers.empty() {
			delete(w.mu.slots, s.number)
			return false
		}
		w.placeLocked(s.timers.pop(), now)
	}
	return true
}

// catchUp runs what is overdue, whether the library knows of it or not.
func (w *Wheel) catchUp() {
	now := w.clock.Now()
	w.mu.Lock()
	if w.mu.closing {
		w.mu.Unlock()
		return
	}
	w.advanceLocked(now)
	var overdue []*slot
	for _, s := range w.mu.slots {
		// One tick for the library to be late by.
		if w.leadLocked(s)+tickGrains <= 0 {
			overdue = append(overdue, s)
		}
	}
	w.tasks.Add(1)
	w.mu.Unlock()
	defer w.tasks.Done()

	slices.SortFunc(overdue, func(a, b *slot) int { return cmp.Compare(a.number, b.number) })
	for _, s := range overdue {
		w.drain(s)
	}
}

// moved is told of each move of a clock that only moves when told to, which may
// then stand still in the middle of a grain for ever.
func (w *Wheel) moved() {
	w.catchUp()
	now := w.clock.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.mu.closing {
		w.mu.near.turnPart(w.mu.done+1, now, &w.mu.due)
		w.startWorkerLocked()
	}
}

// alarm is a timer of the library: a slot's, or the canary's (slot nil).
type alarm struct {
	slot *slot

	// Guarded by Wheel.mu.
	generation uint64        // of the latest AfterFunc; a fire of another is stale
	set        clock.Instant // on the machine's clock, which the library runs on
	delay      time.Duration
}
