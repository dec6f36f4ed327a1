package lock

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// queueWalk is a name whose engines queue at the server, to which anything happens in any order.
type queueWalk struct {
	*lab
	random  *rand.Rand
	name    *Entry
	waiting []*caller
	holds   []*tenant
	listed  bool // recovery lists it
	trace   []string
}

// Whatever happens, in any order: a head that sleeps has an alarm, hears what would wake it, and tries when that
// comes; and no place is kept that nobody needs.
func TestQueue_AnythingHappens_TheHeadSleepsSoundly(t *testing.T) {
	t.Parallel()
	first := rand.Uint64()
	for seed := first; seed < first+3000; seed++ {
		l := newLab(t)
		w := &queueWalk{lab: l, random: rand.New(rand.NewPCG(seed, 7)), name: l.name()}
		for range 90 {
			w.step()
			if w.name.Detached {
				break
			}
			if fault := w.fault(); fault != "" {
				t.Fatalf("seed %d: %s\n%s\n%+v", seed, fault, strings.Join(w.trace, "\n"), w.name.View())
			}
		}
	}
}

func (w *queueWalk) do(what string, f func(*Ready)) {
	w.trace = append(w.trace, what)
	w.does(func(rd *Ready) {
		f(rd)
		w.listed = w.listed || rd.Disconnected == w.name
	})
}

// step is one event.
func (w *queueWalk) step() {
	r, seldom := w.name, w.random.IntN(3) == 0
	var b *bell
	if r.sub != nil {
		b = bellOf(r.sub)
	}
	switch k := w.random.IntN(16); {
	case k == 0 && len(w.waiting) < 3:
		w.trace = append(w.trace, "lock")
		w.waiting = append(w.waiting, w.askAs(r, racer))
	case k == 1 && len(w.waiting) < 3 && seldom:
		w.trace = append(w.trace, "trylock")
		w.waiting = append(w.waiting, w.admit(r, func(c *caller) { c.Kind, c.Persists = racer, UntilAnswered }))
	case k == 2 && len(w.waiting) > 0 && seldom:
		w.trace = append(w.trace, "give up")
		w.giveUp(w.waiting[w.random.IntN(len(w.waiting))])
	case k <= 7 && r.Cmd.Action != NoCommand:
		o := w.answer()
		w.do(fmt.Sprintf("answer to %d, queueing %v: %d, %d, TTL %v, behind %d, first %d, moving %v", r.Cmd.Action, r.Cmd.Join, o.Result, o.Reply, o.TTL, o.Behind, o.First, o.Moving), func(rd *Ready) { r.Replied(&o, rd) })
	case k == 8 && b != nil && b.listening:
		w.do("message", b.OnMessage)
	case k == 9 && b != nil && b.listening:
		w.do("subscribed", b.Subscribed)
	case k == 10 && b != nil && b.listening && seldom:
		w.do("lost", b.ConnectionLost)
	case k == 11 && b != nil && b.calls:
		w.do("called", b.Called)
	case k == 12 && b != nil && b.calls:
		w.do("calls confirmed", b.CallsConfirmed)
	case k == 13 && b != nil && b.calls && seldom:
		if w.random.IntN(4) == 0 {
			w.do("calls refused", b.CallsRefused)
		} else {
			w.do("calls lost", b.CallsLost)
		}
	case k == 14 && b != nil && b.at != 0:
		w.now, b.at = max(w.now, b.at), 0
		w.do("alarm", b.AlarmFired)
	case k == 15 && len(w.holds) > 0:
		w.trace = append(w.trace, "unlock")
		w.unlock(w.holds[0])
	}
	if w.listed && seldom {
		w.listed = false
		w.do("reconnected", func(rd *Ready) { r.Reconnected(nil, rd) })
	}
	if w.paused != 0 && w.random.IntN(2) == 0 {
		w.now, w.paused = max(w.now, w.paused), 0
		w.do("pause over", r.PauseOver)
	}
	w.waiting = slices.DeleteFunc(w.waiting, func(c *caller) bool {
		if c.hold != nil && c.settled > 0 {
			w.holds = append(w.holds, c.hold)
		}
		return c.settled > 0
	})
	w.holds = slices.DeleteFunc(w.holds, func(h *tenant) bool { return h.state != live })
}

// answer is one that the server may give, or the connection.
func (w *queueWalk) answer() Outcome {
	c, o := &w.name.Cmd, Outcome{Sent: w.now}
	w.now = w.now.Add(time.Duration(w.random.IntN(3)) * time.Millisecond)
	o.Now = w.now
	if c.Action != Acquiring {
		if w.random.IntN(6) == 0 {
			o.Result, o.Err = Unknown, errors.New("lost")
		}
		return o
	}
	switch k := w.random.IntN(12); {
	case k == 0:
	case k == 1:
		o.Result, o.Err = Unknown, errors.New("lost")
	case k == 2:
		o.Result, o.Moving = RetryLater, true
	case k == 3:
		o.Result = NotSent
	case k == 4 && c.Join:
		o.Result, o.Err = Refused, errors.New("NOPERM")
	default:
		o.Reply, o.TTL, o.Behind = HeldByOther, time.Duration(1+w.random.IntN(30000))*time.Millisecond, InFront
		o.Moving = w.random.IntN(20) == 0
		if c.Join {
			o.Behind = w.random.IntN(6) - 1
		}
		if c.Join && w.random.IntN(3) == 0 {
			o.TTL, o.First = -time.Millisecond, uint32(1+w.random.IntN(3))
		}
	}
	return o
}

// fault is what is wrong with the name, if anything is.
func (w *queueWalk) fault() string {
	r := w.name
	idle := r.Cmd.Action == NoCommand && r.blocked == NotBlocked && r.hold == nil
	switch {
	case r.sub == nil && r.waiters.Len() > 0 && idle:
		return "somebody waits, and nothing is out"
	case r.sub == nil:
		return ""
	case r.waiters.Len() == 0 && r.sub.queued && !r.Cmd.Join:
		return "nobody waits, and the place is kept"
	case r.waiters.Len() == 0 || !idle:
		return ""
	}
	b := bellOf(r.sub)
	sleeps := b.at.Sub(w.now)
	switch {
	case !b.Asleep() && !b.Skips():
		return "the head neither sleeps nor tries"
	case b.at == 0:
		return "it has no alarm"
	case sleeps > 31*time.Second || b.stage == behind && sleeps > 13*time.Second:
		return fmt.Sprintf("it sleeps for %v", sleeps)
	case b.stage == behind && !b.calls || b.stage != behind && !b.listening && (b.stage != calling || sleeps > 5*time.Second/4):
		return fmt.Sprintf("stage %d: it listens for calls %v, for releases %v, and sleeps for %v", b.stage, b.calls, b.listening, sleeps)
	}
	return ""
}
