package watchdog

import (
	"slices"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/wheel"
)

// cohort is the members that fall due in one quantum, with one wheel timer. A member
// keeps group until it leaves or is in a batch; members[m.place] is m until the cohort
// fires, which takes the whole list.
//
// With a million holds a cohort has some 25,000 members, and every Unlock takes the
// Renewer's mu. So a cohort that fires holds mu for one batch at a time.
type cohort struct {
	r       *Renewer
	quantum int64 // which one
	due     clock.Instant
	timer   wheel.Timer
	members []*Member
	fired   bool // members belongs to the goroutine in Fire
}

// joinLocked puts m, which is nowhere, into the cohort of the quantum that due falls in.
func (r *Renewer) joinLocked(m *Member, due clock.Instant) {
	quantum := int64(due) / int64(r.quantum)
	c := r.mu.cohorts[quantum]
	if c == nil {
		c = &cohort{r: r, quantum: quantum, due: clock.Instant(quantum * int64(r.quantum))}
		c.timer.Init(c)
		r.mu.cohorts[quantum] = c
		r.cfg.Wheel.Schedule(&c.timer, c.due)
	}
	m.group, m.place = c, int32(len(c.members))
	c.members = append(c.members, m)
}

// leaveLocked takes m out. An empty cohort stays until it fires: the next hold joins
// it, and holds that come and go quickly make no timers.
func (c *cohort) leaveLocked(m *Member) {
	m.group = nil
	if c.fired {
		return // Fire sees that it left
	}
	last := len(c.members) - 1
	c.members[m.place] = c.members[last]
	c.members[m.place].place = m.place
	c.members[last] = nil
	c.members = c.members[:last]
}

// Fire implements wheel.Task: the cohort is due. It cuts its members into batches and
// sends them.
func (c *cohort) Fire(_ *wheel.Timer, _ clock.Instant) {
	r := c.r
	r.mu.Lock()
	if c.fired { // All was here
		r.mu.Unlock()
		return
	}
	c.fired = true
	if r.mu.cohorts[c.quantum] == c {
		delete(r.mu.cohorts, c.quantum)
	}
	members := c.members
	c.members = nil
	r.mu.Unlock()

	order := r.order(members)
	for len(order) > 0 {
		n := 1
		for n < min(len(order), batchSize) && order[n].key == order[0].key {
			n++
		}
		r.mu.Lock()
		k := r.takeLocked(c, members, order[:n])
		r.mu.Unlock()
		if k != nil {
			k.launch()
		}
		order = order[n:]
	}
}

// ordered is a member's place, and what all members of a script must share.
type ordered struct {
	key   uint32
	place int32
}

// order sorts the places of members by what they must share to be in one script: how
// many replicas acknowledge, how they are renewed, and in a cluster the slot. It reads only what
// Init set.
func (r *Renewer) order(members []*Member) []ordered {
	slotted := r.slotted.Load()
	list := make([]ordered, len(members))
	mixed := false
	for i, m := range members {
		key := uint32(uint16(m.sub.Wants()))<<16 | uint32(m.sub.Kind())<<14
		if slotted {
			key |= uint32(m.slot)
		}
		list[i] = ordered{key, int32(i)}
		mixed = mixed || key != list[0].key
	}
	if mixed {
		slices.SortFunc(list, func(a, b ordered) int { return int(int64(a.key) - int64(b.key)) })
	}
	return list
}

// takeLocked makes a batch of those that are in the cohort still; nil if none is.
func (r *Renewer) takeLocked(c *cohort, members []*Member, places []ordered) *batch {
	if r.mu.closed {
		return nil
	}
	taken := make([]*Member, 0, len(places))
	for _, o := range places {
		if m := members[o.place]; m.group == c {
			m.group = nil
			taken = append(taken, m)
		}
	}
	if len(taken) == 0 {
		return nil
	}
	return r.newBatchLocked(c.due, taken)
}
