package wheel

import "slices"

// drainBatch bounds how long mu is held while a slot is emptied: about 20 µs.
const drainBatch = 256

// slotLocked returns the slot of a grain. A slot holds the timers of one tick, and
// those on their way to a later one. Its number is that of the tick, and it is one
// timer of the library, as long as it exists.
func (w *Wheel) slotLocked(grain int64) *timerList {
	number := grain / tickGrains
	slot := w.mu.slots[number]
	if slot == nil {
		slot = new(timerList)
		slot.reset()
		w.mu.slots[number] = slot
		w.mu.era.queueLocked(number)
	}
	return slot
}

// drain empties a slot, if it is nearby and still exists. So it does no harm if the
// library calls it early, twice, or long after it was replaced.
func (w *Wheel) drain(number int64) {
	for w.drainSome(number) {
	}
}

func (w *Wheel) drainSome(number int64) (more bool) {
	now := w.clock.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.advanceLocked(now)
	slot := w.mu.slots[number]
	// Nearby means that all its grains are within the near ring: no timer comes back.
	nearby := (number+1)*tickGrains-w.mu.done <= nearSpan
	if slot == nil || !nearby || w.mu.closing {
		return false
	}
	for range drainBatch {
		if slot.empty() {
			delete(w.mu.slots, number)
			return false
		}
		w.placeLocked(slot.pop(), now)
	}
	return true
}

// catchUp runs what is overdue, whether the library knows of it or not.
func (w *Wheel) catchUp() {
	now := w.clock.Now()
	w.mu.Lock()
	w.advanceLocked(now)
	var overdue []int64
	for number := range w.mu.slots {
		// One tick for the library to be late by.
		if (number+1)*tickGrains-slotLead <= w.mu.done {
			overdue = append(overdue, number)
		}
	}
	w.mu.Unlock()

	slices.Sort(overdue)
	for _, number := range overdue {
		w.drain(number)
	}
}

// movable is a clock that tells when it was moved: clock.Fake.
type movable interface {
	OnMove(f func()) (cancel func())
}

// moved is told of each move of a clock that only moves when told to, which may
// then stand still in the middle of a grain for ever.
func (w *Wheel) moved() {
	w.catchUp()
	now := w.clock.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.near.turnPart(w.mu.done+1, now, &w.mu.due)
	w.startWorkerLocked()
}
