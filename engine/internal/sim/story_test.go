package sim

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/resp"
)

// The journeys of DESIGN.md, and some races, as stories: what is done, and what is sent,
// told and left after it. Nothing is left to chance. After each step the promises are
// checked as in every run.
//
// go test ./engine/internal/sim -run Stories -rewrite writes them anew.
func TestStories(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		w := newStory()
		t.Cleanup(w.end)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			t.Helper()
			w.do(t, d)
			if w.failure != nil {
				t.Fatal(w.failure)
			}
			return w.notified()
		})
	})
}

// story is a world in which nothing happens by chance.
type story struct {
	*Sim
	holds map[string]*narrated
}

// narrated is an acquisition of a story, and its hold.
type narrated struct {
	held
	future *engine.Future[*engine.Hold]
	ctx    context.Context
}

func newStory() *story {
	s := newSim(1)
	s.dictated, s.lull, s.lease = true, true, 30*time.Second
	s.quiet = begin.Add(1000 * time.Hour) // a story may do what takes long to heal
	s.story = new(strings.Builder)
	return &story{s, make(map[string]*narrated)}
}

// completed returns what was told since the last call, with short names of engines.
func (w *story) notified() string {
	text := w.story.String()
	w.story.Reset()
	for _, p := range w.processes {
		text = strings.ReplaceAll(text, p.engine().ID(), p.name)
	}
	return text
}

// do does what a line of a story says:
//
//	process                            a process starts, and connects
//	lock p=P1 as=h name=a [try] [lease=5s] [wait=1s] [maxhold=5s] [minhold=5s] [within=h0]
//	context of=h                       makes a context of the hold, for a later within
//	unlock of=h | abandon of=h
//	extend of=h for=5s [ctx=1s]        its context ends after that
//	state p=P1 name=a | force p=P1 name=a [if=h]
//	close p=P1 | shutdown p=P1 [ctx=1s]
//	cut p=P1 [unsent=1] [late=1 by=1s] [away=1s] [pubsub]
//	hang for=1s | pause p=P1 for=1s | kill p=P1 | take name=a silently
//	refuse for=1s                      with BUSY
//	front n=1                          so many race, before the first process; the others queue
//	replica                            the server has a replica, before the first process
//	cluster sharded_pubsub=on                two nodes, before the first process
//	migrate name=a key=1s slot=1s      the key after a while, and then its slot
//	replicate | failover               it has everything; it is promoted
//	run for=1s                         lets that time pass
//	show                               what the server has, and who believes what
func (w *story) do(t *testing.T, d *datadriven.TestData) {
	arg := func(key string) (s string) {
		d.MaybeScanArgs(t, key, &s)
		return s
	}
	span := func(key string) time.Duration {
		if arg(key) == "" {
			return 0
		}
		took, err := time.ParseDuration(arg(key))
		if err != nil {
			t.Fatal(err)
		}
		return took
	}
	process := func() *process {
		if h := w.holds[arg("of")]; h != nil {
			return h.user.p
		}
		i := slices.IndexFunc(w.processes, func(p *process) bool { return p.name == arg("p") })
		if i < 0 {
			t.Fatalf("no process %q", arg("p"))
		}
		return w.processes[i]
	}
	switch d.Cmd {
	case "process":
		w.newProcess()
		w.pass(time.Millisecond)
	case "lock":
		w.lock(t, d, process(), arg, span)
	case "context":
		h := w.holds[arg("of")]
		h.ctx = h.hold.Context(w.Sim.ctx)
		h.contexts = append(h.contexts, h.ctx)
	case "unlock":
		h, name := w.holds[arg("of")], arg("of")
		h.hold.UnlockAsync().OnComplete(func(_ struct{}, err error) {
			w.tell("%s is unlocked: %v", name, err)
			h.over = true
		})
	case "extend":
		h, c := w.holds[arg("of")], process().begin(arg("of"))
		if d.HasArg("ctx") {
			c.ctx = c.p.limit(span("ctx"))
		}
		w.start(c.p, func() { h.extendBy(span("for"), c) })
	case "state", "force":
		p, name, only := process(), arg("name"), ""
		if d.HasArg("if") {
			only = w.holds[arg("if")].owners[0]
		}
		u, x := &user{p: p, name: p.name}, p.sites[0]
		w.start(p, func() {
			if d.Cmd == "state" {
				u.state(x, p.mutex(name), name)
			} else {
				u.force(x, p.mutex(name), name, only)
			}
		})
	case "close":
		p := process()
		w.start(p, p.sites[0].close)
	case "shutdown":
		p := process()
		w.start(p, func() { p.sites[0].shutdown(d.HasArg("ctx"), span("ctx")) })
	case "abandon":
		w.holds[arg("of")].future.Abandon()
	case "cut":
		p := process()
		var unsent, late int
		d.MaybeScanArgs(t, "unsent", &unsent)
		d.MaybeScanArgs(t, "late", &late)
		p.dictation = dictation{unsent, late, span("by"), span("away")}
		if d.HasArg("pubsub") {
			p.sites[0].nodes[0].pubsub.cut()
		} else {
			for _, c := range p.sites[0].conns() {
				c.cut()
			}
		}
	case "hang":
		w.server.hangs = w.now.Add(span("for"))
	case "refuse":
		w.server.refuses, w.server.refusesUntil = refusals[1], w.now.Add(span("for"))
	case "pause":
		p := process()
		p.wakes = w.now.Add(span("for"))
	case "kill":
		process().kill()
	case "take":
		w.rob(w.server, arg("name"), d.HasArg("silently"))
	case "front":
		d.ScanArgs(t, "n", &w.front)
	case "replica":
		w.server.replica = new(replica)
		w.server.replicate()
	case "cluster":
		w.divide(2, arg("sharded_pubsub"))
	case "migrate":
		number, to := resp.SlotOf(arg("name")), w.cluster.nodes[0]
		if to == w.cluster.slots[number].at {
			to = w.cluster.nodes[1]
		}
		w.migrate(number, to, span("key"), span("slot"), func() {})
	case "replicate":
		w.server.replicate()
	case "failover":
		w.failover(w.server)
	case "run":
		w.pass(span("for"))
	case "show":
		w.show()
	default:
		t.Fatalf("%s: no such command: %s", d.Pos, d.Cmd)
	}
}

func (w *story) lock(t *testing.T, d *datadriven.TestData, p *process, arg func(string) string, span func(string) time.Duration) {
	name := arg("as")
	h := &narrated{held: held{user: &user{p: p, name: name}, names: []string{arg("name")}, watchdog: arg("lease") == ""}}
	w.holds[name] = h
	ctx := context.Background()
	if of := arg("within"); of != "" {
		h.within = &w.holds[of].held
		ctx = context.WithoutCancel(w.holds[of].ctx)
	}
	var options []engine.Option
	for key, option := range map[string]func(time.Duration) engine.Option{"lease": engine.Lease, "wait": engine.Wait, "maxhold": engine.MaxHold, "minhold": engine.MinHold} {
		if d.HasArg(key) {
			options = append(options, option(span(key)))
		}
	}
	m := p.mutex(arg("name"))
	if d.HasArg("try") {
		h.future = m.TryLockAsync(ctx, options...)
	} else {
		h.future = m.LockAsync(ctx, options...)
	}
	h.future.OnComplete(func(got *engine.Hold, err error) {
		if err != nil {
			w.tell("%s is refused: %v", name, err)
			return
		}
		h.hold = got
		h.findOwners()
		w.tell("%s is granted, as %s", name, got.Owner())
		w.Sim.holds = append(w.Sim.holds, &h.held)
	})
}

// pass lets some time pass.
func (w *story) pass(d time.Duration) {
	end := w.now.Add(d)
	over := false
	w.at(end, nil, func() { over = true })
	for !over && w.step() {
	}
}

func (w *story) show() {
	for _, line := range append(w.server.Record(), w.server.Waiting(func(string) bool { return true })...) {
		w.tell("the server has %s", line)
	}
	for _, h := range w.Sim.holds {
		left := h.hold.ValidUntil().Sub(h.user.p.wall()).Round(time.Millisecond)
		alive := 0
		for _, ctx := range h.contexts {
			if ctx.Err() == nil {
				alive++
			}
		}
		w.tell("%s: valid for %v, Err %v, %d contexts alive", h.user.name, max(0, left), h.hold.Err(), alive)
	}
	for _, p := range w.processes {
		if n := p.engine().Stats(); !p.dead {
			w.tell("%s: %d held, %d wait, %d channels", p.name, n.Held, n.Waiting, len(p.sites[0].wanted()))
		}
	}
}
