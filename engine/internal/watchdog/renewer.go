package watchdog

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/engine/internal/waitq"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/wheel"
)

// Renewable is a hold under renewal. Its methods, but for Until, Wants and Kind, are called without
// any lock of this package, and may call JoinNext and Leave.
type Renewable interface {
	// Renewal says what to send at now. A subject that is past its time ends
	// itself and answers false, as does one that has ended already.
	Renewal(now clock.Instant) (script.Renewal, bool)
	// Until is the instant at which the subject's time is over unless a renewal
	// is acknowledged before. It takes no lock: it may be called under mu.
	Until() clock.Instant
	// Wants is how many replicas must acknowledge its renewals, Kind how it is renewed. They
	// never change, and may be called under mu.
	Wants() resp.Acks
	Kind() kind.Renewal
	// Renewed: the server raised the lease, at sent or later, and so many replicas have
	// acknowledged it: as many as it wants, or more.
	Renewed(sent, now clock.Instant, lease time.Duration, acked int)
	// Gone: the server answered with this code (Gone or WrongType): it does not
	// have the hold any more.
	Gone(code int64)
}

// BatchResult is what an Observer is told of one renewal script.
type BatchResult struct {
	Slot  uint16 // of its holds, in a cluster
	Holds int
	Lag   time.Duration // from when it was due to when it was sent
	RTT   time.Duration
	Err   error
	Names []string // with Err: of some of the holds
}

// Timers is what a Renewer uses of a wheel.Wheel.
type Timers interface {
	Schedule(t *wheel.Timer, at clock.Instant)
	Cancel(t *wheel.Timer) bool
}

// Config is what a Renewer needs.
type Config struct {
	Clock   clock.Clock
	Wheel   Timers
	Draw    func(d time.Duration) time.Duration // a random part of d
	Lease   time.Duration                       // what a watchdog hold is given
	Submit  func(slot uint16, r resp.DurableRequest)
	OnBatch func(BatchResult) // may be nil; called on the event loop
	// Slotted: the locks of one script must share a slot, as in a cluster. A server that refuses
	// several at once, and takes each alone, is believed to want that, too.
	Slotted bool
}

// A Renewer renews holds. Members that fall due in one quantum form a cohort with
// one wheel timer; a cohort that fires is cut into batches of at most batchSize
// locks, one script each, all sent at once. Each batch has its own fate: a
// failure is retried by that batch alone, within the time that its members have
// left.
//
// Invariants:
//
//  1. A member is in one cohort, in one batch, or in neither; mu guards which.
//  2. A member of a cohort has more time left than its cohort takes to fire, or less
//     than a quantum; a member of a batch is watched by the batch's timer. So no hold
//     outlives its time unnoticed by more than a quantum, whatever the network does.
//  3. Subjects, but for Until, Wants and Kind, are called without mu. So what they answer, and what they are
//     told, may be out of date: they decide under their own lock. A member that has left is
//     not called.
type Renewer struct {
	cfg     Config
	quantum time.Duration
	slotted atomic.Bool

	mu struct {
		sync.Mutex
		closed  bool
		cohorts map[int64]*cohort
		chunks  waitq.Set[*batch]
	}
}

// never is later than any end.
const never = clock.Instant(math.MaxInt64)

// slots is how many a cluster has.
const slots = 1 << 14

// Member is a Renewable's place in a Renewer; embed it and Init it once.
type Member struct {
	sub   Renewable
	group *cohort
	chunk *batch
	place int32 // in the members of its cohort or batch
	again bool  // Now was called while a renewal was out
	// inFullBatch: its last renewal was one of batchSize, which others of its slot followed.
	full bool
	slot uint16
}

// Init names the subject, and the slot of its key.
func (m *Member) Init(s Renewable, slot uint16) { m.sub, m.slot = s, slot }

// New makes a Renewer.
func New(cfg Config) *Renewer {
	r := &Renewer{cfg: cfg}
	r.slotted.Store(cfg.Slotted)
	// 250 ms at the default lease of 30 s: at most 45 cohorts are alive.
	r.quantum = min(max(cfg.Lease/120, time.Millisecond), 250*time.Millisecond)
	r.mu.cohorts = make(map[int64]*cohort)
	return r
}

// JoinFirst puts a new hold into the cohort of its first renewal, a sixth to a third
// of the lease from now. Otherwise a service that takes all its locks when it starts would
// renew them all in the same second for ever.
func (r *Renewer) JoinFirst(m *Member, now clock.Instant) {
	sixth := r.cfg.Lease / 6
	r.joinWithin(m, now, sixth+r.cfg.Draw(sixth))
}

// JoinNext puts m into the cohort of its next renewal: a third of the lease from
// now, up to a tenth of that earlier or later, so that holds taken together do
// not stay together.
//
// In a cluster a script has locks of one slot only. So there the holds of a slot do stay
// together, at the beat of that slot. Holds that fill whole scripts gain nothing by that,
// and are spread as above.
func (r *Renewer) JoinNext(m *Member, now clock.Instant) {
	third := r.cfg.Lease / 3
	if r.slotted.Load() && !r.inFullBatch(m) {
		r.joinWithin(m, now, r.untilPhase(m.slot, now))
		return
	}
	r.joinWithin(m, now, third+r.cfg.Draw(third/5+1)-third/10)
}

func (r *Renewer) inFullBatch(m *Member) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return m.full
}

// untilPhase is how long it is from now to a beat of the slot. Each slot has one in every
// third of the lease, and the beats of all slots are spread evenly. The wait is at most 1.1
// thirds; the tenth is for answers that come late. If it would be less than 0.4 of a third,
// it is half a third longer, and the beat after that is within reach.
func (r *Renewer) untilPhase(slot uint16, now clock.Instant) time.Duration {
	third := r.cfg.Lease / 3
	// Multiplied by an odd number, so that the neighbours on one node do not beat in a row.
	phase := third / slots * time.Duration(slot*40503%slots)
	latest := now.Add(third + third/10)
	wait := latest.Sub(now) - (time.Duration(latest)+third-phase)%third
	if wait < third*2/5 {
		wait += third / 2
	}
	return wait
}

// joinWithin joins the cohort that is due after wait, or after half of what is left of m's
// time if that is sooner (an answer may have come late), but not in less than a quantum.
// Otherwise a renewal that cannot move the end (MaxHold) would be repeated as fast as it is
// answered.
func (r *Renewer) joinWithin(m *Member, now clock.Instant, wait time.Duration) {
	half := m.sub.Until().Sub(now) / 2
	r.Join(m, now.Add(min(wait, max(half, r.quantum))))
}

// Join puts m, which is nowhere, into the cohort that is due then.
func (r *Renewer) Join(m *Member, due clock.Instant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.mu.closed && m.group == nil && m.chunk == nil {
		r.joinLocked(m, due)
	}
}

// Any reports whether any hold waits for its next renewal.
func (r *Renewer) Any() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.mu.cohorts {
		if len(c.members) > 0 { // an empty one stays until it is due
			return true
		}
	}
	return r.mu.chunks.Len() > 0
}

// Held returns how many holds of some slots wait for renewal, and when the first of them ends, if there is one.
func (r *Renewer) Held(of func(slot uint16) bool) (n int, first clock.Instant) {
	first = never
	count := func(members []*Member) {
		for _, m := range members {
			if m != nil && of(m.slot) {
				n++
				first = min(first, m.sub.Until())
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.mu.cohorts {
		count(c.members)
	}
	for _, k := range r.mu.chunks.InOrder() {
		count(k.members)
	}
	return n, first
}

// Leave takes m out, wherever it is. A renewal that is under way is not stopped,
// but m hears nothing of it.
func (r *Renewer) Leave(m *Member) {
	r.mu.Lock()
	r.leaveLocked(m)
	r.mu.Unlock()
}

func (r *Renewer) leaveLocked(m *Member) {
	if c := m.group; c != nil {
		c.leaveLocked(m)
	}
	if k := m.chunk; k != nil {
		m.chunk = nil
		m.again = false
		k.members[m.place] = nil
	}
}

// Now renews m at once, in a batch of its own. If a renewal is out already the next
// follows its answer, for it may have been executed before what made the caller
// ask; so however often Now is called, it costs a renewal per round trip. It calls
// m's subject: the caller holds no lock of it.
func (r *Renewer) Now(m *Member) {
	r.mu.Lock()
	if r.mu.closed || m.chunk != nil {
		m.again = m.chunk != nil
		r.mu.Unlock()
		return
	}
	r.leaveLocked(m)
	k := r.newBatchLocked(r.cfg.Clock.Now(), []*Member{m})
	r.mu.Unlock()
	k.launch()
}

// Soon renews m within a quantum, together with all others that are due by then. If a
// renewal is out the next follows its answer, as with Now. It does not call m's subject:
// the caller may hold its lock.
func (r *Renewer) Soon(m *Member) {
	due := r.cfg.Clock.Now().Add(r.quantum)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.mu.closed, m.group != nil && m.group.due <= due:
	case m.chunk != nil:
		m.again = true
	default:
		r.leaveLocked(m)
		r.joinLocked(m, due)
	}
}

// repeat renews m at once if Now was called while its renewal was out.
func (r *Renewer) repeat(m *Member) {
	r.mu.Lock()
	again := m.again
	m.again = false
	r.mu.Unlock()
	if again {
		r.Now(m)
	}
}

// All renews every member of every cohort at once: the wall clock stepped, or the
// machine slept, and nobody knows how the server saw it.
func (r *Renewer) All() {
	r.mu.Lock()
	cohorts := make([]*cohort, 0, len(r.mu.cohorts))
	for _, c := range r.mu.cohorts {
		r.cfg.Wheel.Cancel(&c.timer)
		cohorts = append(cohorts, c)
	}
	r.mu.Unlock()
	slices.SortFunc(cohorts, func(a, b *cohort) int { return cmp.Compare(a.quantum, b.quantum) })
	now := r.cfg.Clock.Now()
	for _, c := range cohorts {
		c.Fire(&c.timer, now)
	}
	r.Resume()
}

// Resume sends the batches that wait to be retried: the connection is back, perhaps to another server.
func (r *Renewer) Resume() {
	r.slotted.Store(r.cfg.Slotted)
	r.mu.Lock()
	waiting := slices.DeleteFunc(r.mu.chunks.InOrder(), func(k *batch) bool { return k.state != waiting })
	r.mu.Unlock()
	for _, k := range waiting {
		k.launch()
	}
}

// Close forgets every member. Replies that still come are ignored.
func (r *Renewer) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.closed = true
	for _, c := range r.mu.cohorts {
		r.cfg.Wheel.Cancel(&c.timer)
	}
	for _, k := range r.mu.chunks.InOrder() {
		r.cfg.Wheel.Cancel(&k.timer)
		for i, m := range k.members {
			if m != nil {
				m.chunk, k.members[i] = nil, nil
			}
		}
	}
	clear(r.mu.cohorts)
	r.mu.chunks = waitq.Set[*batch]{}
}
