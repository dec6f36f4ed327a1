package linearizability

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// register notes who had which lock when, by the clock of this process.
type register struct {
	start  time.Time
	mu     sync.Mutex
	claims []*claim
	thefts []theft
}

// claim is what one hold says of itself. Until is the latest instant until which it
// was certainly exclusive: what ValidUntil said while it was live, or the call of
// Unlock if that came first.
type claim struct {
	name, owner string
	engine      string
	asked       time.Time
	granted     time.Time
	until       time.Time
	valid       time.Time // the latest ValidUntil
	unlocking   time.Time // Unlock was called; zero: not yet
	unlocked    time.Time // it returned
	result      error     // of Unlock
	token       int64     // 0: it has none
}

func (c *claim) String() string {
	return fmt.Sprintf("%s, owner %s: asked %v, granted %v, exclusive until %v, Unlock %v to %v: %v", c.name, c.owner,
		c.asked.UnixMicro(), c.granted.UnixMicro(), c.until.UnixMicro(), c.unlocking.UnixMicro(), c.unlocked.UnixMicro(), c.result)
}

// theft is a removal of a key by somebody else.
type theft struct {
	name          string // "": of all keys that an engine had
	before, after time.Time
}

func (r *register) granted(e *engine.Engine, h *engine.Hold, asked time.Time) *claim {
	c := &claim{name: h.Name(), owner: h.Owner(), engine: e.ID(), asked: asked, granted: time.Now()}
	c.until, c.token = c.granted, (h).Token()
	c.look(h)
	r.mu.Lock()
	r.claims = append(r.claims, c)
	r.mu.Unlock()
	return c
}

// look notes until when the hold is good, and reports whether it is live.
func (c *claim) look(h *engine.Hold) bool {
	until := h.ValidUntil()
	if h.Err() != nil {
		return false
	}
	// It was live when it said so.
	if until.After(c.until) {
		c.until, c.valid = until, until
	}
	return true
}

// unlock gives the hold back and notes how that went.
func (r *register) unlock(t *testing.T, ctx context.Context, h *engine.Hold, c *claim) {
	c.unlocking = time.Now()
	was := h.Err()
	err := h.Unlock(ctx)
	c.unlocked, c.result = time.Now(), err
	if c.until.After(c.unlocking) {
		c.until = c.unlocking
	}
	switch {
	case err == nil, errors.Is(err, engine.ErrOutcomeUnknown):
		if was != nil {
			t.Errorf("Unlock of a hold that had ended (%v): %v", was, err)
		}
	case !errors.Is(err, engine.ErrLost):
		t.Errorf("Unlock: %v", err)
	}
}

func (r *register) stole(name string, before time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.thefts = append(r.thefts, theft{name, before, time.Now()})
}

// closed notes that an engine was closed, and what it held given back.
func (r *register) closed(before time.Time) { r.stole("", before) }

// check looks at everything that was noted.
func (r *register) check(t *testing.T, kind historyKind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.claims) < 50 {
		t.Errorf("only %d holds: this tested little", len(r.claims))
	}
	outcomes := make(map[string]int)
	for _, c := range r.claims {
		outcomes[outcomeOf(c.result)]++
	}
	t.Logf("%d holds: %v; %d thefts", len(r.claims), outcomes, len(r.thefts))
	r.checkExclusion(t)
	if kind.tokens {
		r.checkTokens(t)
	}
	if !kind.thieves {
		r.checkReasons(t, kind)
	}
	if !kind.thieves && !kind.closes {
		r.checkOrder(t)
	}
}

func outcomeOf(err error) string {
	var lost *engine.LostError
	switch {
	case errors.As(err, &lost):
		return lost.Reason.String()
	case errors.Is(err, engine.ErrOutcomeUnknown):
		return "release unknown"
	case err != nil:
		return err.Error()
	}
	return "released"
}

// checkExclusion: no hold was granted while another one of the name was certainly
// exclusive.
func (r *register) checkExclusion(t *testing.T) {
	claims := slices.Clone(r.claims)
	slices.SortFunc(claims, func(a, b *claim) int { return a.granted.Compare(b.granted) })
	longest := make(map[string]*claim)
	for _, c := range claims {
		if p := longest[c.name]; p != nil && p.until.After(c.granted) && !r.stolenFrom(p, c) {
			t.Errorf("two holds at once, by %v:\n%v\n%v", p.until.Sub(c.granted), p, c)
		}
		if p := longest[c.name]; p == nil || c.until.After(p.until) {
			longest[c.name] = c
		}
	}
}

// stolenFrom reports whether the name was stolen while one of the two may have had
// it: which of them was first is known only to the server.
func (r *register) stolenFrom(a, b *claim) bool {
	return slices.ContainsFunc(r.thefts, func(th theft) bool {
		return (th.name == a.name || th.name == "") && (th.after.After(a.asked) || th.after.After(b.asked)) && th.before.Before(b.granted)
	})
}

// checkReasons: where nobody removes keys, the server loses no hold in its time.
func (r *register) checkReasons(t *testing.T, kind historyKind) {
	for _, c := range r.claims {
		var lost *engine.LostError
		if !errors.As(c.result, &lost) || lost.Reason == engine.NotRenewed || lost.Reason == engine.LeaseEnded || lost.Reason == engine.MaxHoldReached {
			continue
		}
		if lost.Reason == engine.EngineClosed && kind.closes {
			continue
		}
		// A release that reaches the server after the lease finds nothing there.
		if lost.Reason == engine.RemovedOnServer && c.unlocked.After(c.valid) {
			continue
		}
		t.Errorf("lost, and nobody took it (%v): %v", lost, c)
	}
}

// The model of a mutex with leases, for porcupine: acquire by an owner is legal if
// nobody has it; its end, by Unlock or by loss, only while that owner has it. A loss
// may take effect at any time after the hold's certain end.
type mutexOp struct {
	name, owner string
	acquire     bool
}

var mutexModel = porcupine.Model{
	Partition: func(all []porcupine.Operation) [][]porcupine.Operation {
		names := make(map[string][]porcupine.Operation)
		for _, op := range all {
			name := op.Input.(mutexOp).name
			names[name] = append(names[name], op)
		}
		var parts [][]porcupine.Operation
		for _, part := range names {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return "" },
	Step: func(state, input, _ any) (bool, any) {
		op := input.(mutexOp)
		if op.acquire {
			return state == "", op.owner
		}
		return state == op.owner, ""
	},
	DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%+v", input) },
}

// checkOrder: the grants and ends of a name are those of one mutex.
func (r *register) checkOrder(t *testing.T) {
	at := func(i time.Time) int64 { return int64(i.Sub(r.start)) }
	const never = int64(time.Hour) * 24
	var ops []porcupine.Operation
	for i, c := range r.claims {
		ops = append(ops, porcupine.Operation{
			ClientId: i, Input: mutexOp{c.name, c.owner, true}, Call: at(c.asked), Return: at(c.granted),
		})
		end := porcupine.Operation{ClientId: i, Input: mutexOp{c.name, c.owner, false}, Call: at(c.until), Return: never}
		if c.result == nil {
			end.Call, end.Return = at(c.unlocking), at(c.unlocked)
		}
		ops = append(ops, end)
	}
	switch porcupine.CheckOperationsTimeout(mutexModel, ops, testkit.Patience) {
	case porcupine.Illegal:
		t.Error("this is not the history of a mutex for each name")
	case porcupine.Unknown:
		t.Errorf("the history could not be judged within %v", testkit.Patience)
	}
}

// checkTokens: each hold of a name has a token of its own, which is higher than those of all holds that
// were granted before it was asked for.
func (r *register) checkTokens(t *testing.T) {
	names := make(map[string][]*claim)
	for _, c := range r.claims {
		names[c.name] = append(names[c.name], c)
	}
	for _, all := range names {
		slices.SortFunc(all, func(a, b *claim) int { return cmp.Compare(b.token, a.token) })
		first := all[0] // to be granted, of those with higher tokens
		for i, c := range all {
			if c.token < 1 || i > 0 && c.token == all[i-1].token {
				t.Errorf("token %d of\n%v\n%v", c.token, c, all[max(i-1, 0)])
			}
			if first.granted.Before(c.asked) {
				t.Errorf("token %d after %d:\n%v\n%v", c.token, first.token, first, c)
			}
			if c.granted.Before(first.granted) {
				first = c
			}
		}
	}
}
