package linearizability

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// vandal makes faults, one after another: at a network between engines and servers, or, without
// a proxy, at the server of a history. It mends what it broke before it goes on.
type vandal struct {
	h       *history
	p       func() *faultproxy.Proxy // through which the commands go now
	scripts []*script.Script         // at which faults aim
	rng     *rand.Rand
	calm    time.Duration // for how long there may be no fault
	faults  int           // so far
}

func newVandal(h *history, p *faultproxy.Proxy, stream uint64) *vandal {
	v := &vandal{h: h, rng: h.rand(stream), scripts: h.kind.scripts, calm: time.Second}
	if v.scripts == nil {
		v.scripts = []*script.Script{script.Acquire, script.Release, script.Renew, script.Reenter, script.Leave}
	}
	if p != nil {
		v.p = func() *faultproxy.Proxy { return p }
	}
	return v
}

func (v *vandal) run(over <-chan struct{}) {
	for {
		quiet := rand64(v.rng, 250*time.Millisecond)
		if v.rng.IntN(10) == 0 {
			quiet = rand64(v.rng, v.calm) // leases are renewed
		}
		if !testkit.Pause(over, quiet) {
			return
		}
		v.faults++
		if v.p != nil {
			v.atNetwork(over)
		} else {
			v.atServer(over)
		}
	}
}

// some picks connections: all, the one that hears messages, the others, or any.
func (v *vandal) some() faultproxy.Select {
	switch v.rng.IntN(5) {
	case 0, 1:
		return faultproxy.All
	case 2:
		return faultproxy.Carried("SUBSCRIBE")
	case 3:
		return faultproxy.Not(faultproxy.Carried("SUBSCRIBE"))
	}
	salt := v.rng.IntN(2)
	return func(c faultproxy.Info) bool { return c.ID%2 == salt }
}

// a command of some script.
func (v *vandal) command() faultproxy.Match {
	return faultproxy.Is("EVALSHA", v.scripts[v.rng.IntN(len(v.scripts))].SHA)
}

// outage is mostly short, sometimes longer than a lease or the command timeout.
func (v *vandal) outage() time.Duration {
	if v.rng.IntN(6) == 0 {
		return rand64(v.rng, 2*time.Second)
	}
	return rand64(v.rng, 100*time.Millisecond)
}

func (v *vandal) atNetwork(over <-chan struct{}) {
	p := v.p()
	switch v.rng.IntN(8) {
	case 0:
		p.Cut(v.some())
	case 1:
		trap := p.CutAfterRequest(v.command())
		testkit.Pause(over, v.outage())
		trap.Remove()
	case 2:
		trap := p.CutBeforeRequest(v.command())
		testkit.Pause(over, v.outage())
		trap.Remove()
	case 3:
		p.Pause(v.some())
		testkit.Pause(over, v.outage())
		p.Resume()
	case 4:
		p.Blackhole(v.some())
		testkit.Pause(over, v.outage())
		p.Heal()
	case 5: // what is under way is lost, late
		p.Pause(v.some())
		testkit.Pause(over, v.outage())
		p.Cut(v.some())
		p.Resume()
	case 6:
		far := 30 * time.Millisecond
		if v.rng.IntN(2) == 0 {
			far = 300 * time.Millisecond // more than the margin of a short lease
		}
		p.Delay(v.some(), rand64(v.rng, far), rand64(v.rng, far))
		testkit.Pause(over, v.outage()+far)
		p.Delay(faultproxy.All, 0, 0)
	case 7:
		refusals := []string{"BUSY", "LOADING", "READONLY", "OOM", "MISCONF"}
		text := refusals[v.rng.IntN(len(refusals))]
		trap := p.ReplaceReply(v.command(), fmt.Appendf(nil, "-%s not now\r\n", text), 1+v.rng.IntN(5))
		testkit.Pause(over, v.outage())
		trap.Remove()
	}
}

// atServer talks to the server as its admin. It may be stopped: errors do not
// matter.
func (v *vandal) atServer(over <-chan struct{}) {
	s := v.h.s.Process
	switch v.rng.IntN(6) {
	case 0:
		_, _ = s.Do("SCRIPT", "FLUSH")
	case 1:
		_, _ = s.Do("CLIENT", "KILL", "TYPE", "pubsub")
	case 2:
		_, _ = s.Do("CLIENT", "KILL", "TYPE", "normal")
	case 3:
		if v.h.kind.stops {
			_ = s.Stop()
			testkit.Pause(over, v.outage())
			_ = s.Cont()
		}
	default:
		if v.h.kind.thieves {
			v.steal()
		}
	}
}

// steal removes a key. DEL tells nobody, and a waiter sleeps on until the lease that
// it was told ends; force-unlock announces itself.
func (v *vandal) steal() {
	name := v.h.names[v.rng.IntN(len(v.h.names))]
	before := time.Now()
	if v.rng.IntN(2) == 0 {
		_, _ = v.h.s.Process.Do("DEL", name)
	} else {
		_, _ = v.h.s.Process.Do("EVAL", script.Force.Text, "1", name, "", "redisson_lock__channel:{"+name+"}", "PUBLISH")
	}
	v.h.register.stole(name, before)
}
