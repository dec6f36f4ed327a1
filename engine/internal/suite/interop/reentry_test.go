package interop

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// simple are the types with a state of their own.
func simple(k kind) bool { return !k.composed }

// mutex is the lock of a type that has no other members. The types with one kind of waiters do
// not differ in what it is for.
func (x *subject) mutex() engine.Mutex {
	switch {
	case x.queues:
		return x.stage.engines[0].FairMutex(x.names[0])
	case x.writes:
		return x.stage.engines[0].RWMutex(x.names[0]).Writer()
	case x.reads:
		return x.stage.engines[0].RWMutex(x.names[0]).Reader()
	}
	return x.stage.engines[0].Mutex(x.names[0])
}

// mode is what Pawl calls the way in which the lock is held.
func (x *subject) mode() string {
	switch {
	case x.writes:
		return "write"
	case x.reads:
		return "read"
	}
	return "exclusive"
}

// longest is the TTL that the lock may have in a test that takes it twice. Redisson adds the
// lease of a write lock that is entered again to what is left.
func (x *subject) longest() time.Duration {
	if x.writes {
		return 2 * x.stage.lease
	}
	return x.stage.lease
}

// held are the fields of a lock that one owner has.
func (x *subject) held(owner string, count int) map[string]string {
	m := map[string]string{owner: fmt.Sprint(count)}
	if x.writes || x.reads {
		m["mode"] = x.mode()
	}
	return m
}

// fields are what the server has of the lock.
func (x *subject) fields(t testing.TB) map[string]string {
	t.Helper()
	list, _ := x.stage.sites[0].do(t, x.names[0], "HGETALL", x.names[0]).([]any)
	m := make(map[string]string)
	for i := 0; i+1 < len(list); i += 2 {
		m[list[i].(string)] = list[i+1].(string)
	}
	return m
}

func (x *subject) wantFields(t testing.TB, want map[string]string) {
	t.Helper()
	if got := x.fields(t); !maps.Equal(got, want) {
		t.Errorf("the server has %v, want %v", got, want)
	}
}

// wantJava compares Redisson's view of the lock: locked? by this thread? how often? A free
// lock has a TTL of -2, and one that is held nearly the whole lease.
func (x *subject) wantJava(t testing.TB, thread string, locked, mine bool, count int) {
	t.Helper()
	var l, m bool
	var n, ttl int
	if _, err := fmt.Sscan(x.ask(thread, "state").want(t), &l, &m, &n, &ttl); err != nil {
		t.Fatal(err)
	}
	if left := time.Duration(ttl) * time.Millisecond; l != locked || m != mine || n != count ||
		locked && (left > x.longest() || left < x.stage.lease/2) || !locked && ttl != -2 {
		t.Errorf("Java, %s: locked %t, its own %t, held %d times, TTL %v; want %t, %t, %d", thread, l, m, n, left, locked, mine, count)
	}
}

// wantPawl compares Pawl's view of the lock; no owner means that it is free.
func (x *subject) wantPawl(t testing.TB, owner string, count int, mine bool) {
	t.Helper()
	state, err := x.mutex().State(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	if owner == "" {
		if state.Locked || len(state.Holders) > 0 {
			t.Errorf("Pawl: %+v, want a free lock", state)
		}
		return
	}
	if !state.Locked || state.Mine != mine || state.Mode != x.mode() || len(state.Holders) != 1 ||
		state.Holders[0] != (engine.Holder{ID: owner, Count: count}) || state.TTL > x.longest() || state.TTL < x.stage.lease/2 {
		t.Errorf("Pawl: %+v; want %d holds of %s", state, count, owner)
	}
}

// wantHeld expects that Pawl is told at once that another has the lock.
func (x *subject) wantHeld(t testing.TB) {
	t.Helper()
	var refused *engine.NotAcquiredError
	if _, err := x.try(testkit.Ctx(t)); !errors.Is(err, engine.ErrHeld) || !errors.As(err, &refused) || refused.TTL < x.stage.lease/2 {
		t.Errorf("Pawl's TryLock: %v; want %v, with the TTL", err, engine.ErrHeld)
	}
}

// wantJavaHeld expects that Java is told that another has the lock.
func (x *subject) wantJavaHeld(t testing.TB, thread string) {
	t.Helper()
	if got := x.ask(thread, "try", 0, -1).want(t); got != "false" {
		t.Errorf("Java's tryLock: %s, want false", got)
	}
	if _, err := x.ask(thread, "unlock").result(t); err == nil || !strings.HasPrefix(err.Error(), "IllegalMonitorStateException") {
		t.Errorf("Java's unlock: %v, want IllegalMonitorStateException", err)
	}
}

var javaOwner = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}:\d+$`)

// What one holds, the other sees: the owner, and how often it has the lock.
func TestBothSeeWhoHoldsItAndHowOften(t *testing.T) {
	onEachStageWithReaders(t, calm, simple, func(t *testing.T, s *stage, k kind) {
		x := s.subject(t, k, "looked at")
		y := x.rival()
		once := k.java == "nonreentrant"
		owner := s.jvm.ask(x.thread("a"), "owner", s.clients[0]).want(t)
		if !javaOwner.MatchString(owner) {
			t.Fatalf("Java's owner is %q", owner)
		}
		if k.writes {
			owner += ":write"
		}
		javaHas := func(count int) {
			t.Helper()
			x.wantFields(t, x.held(owner, count))
			x.wantJava(t, "a", true, true, count)
			x.wantJava(t, "b", true, false, 0)
			x.wantPawl(t, owner, count, false)
			y.wantHeld(t)
			y.wantJavaHeld(t, "b")
		}
		x.wantJava(t, "a", false, false, 0)
		x.wantPawl(t, "", 0, false)
		x.ask("a", "lock", -1).want(t)
		javaHas(1)
		if once {
			if _, err := x.ask("a", "lock", -1).result(t); err == nil {
				t.Error("Java has it twice")
			}
		} else {
			x.ask("a", "lock", -1).want(t)
			javaHas(2)
			x.ask("a", "unlock").want(t)
		}
		javaHas(1)
		x.ask("a", "unlock").want(t)

		h := x.mustLock(t)
		pawlHas := func(count int) {
			t.Helper()
			owner := h.(interface{ Owner() string }).Owner()
			x.wantFields(t, x.held(owner, count))
			x.wantJava(t, "a", true, false, 0)
			y.wantJavaHeld(t, "a")
			y.wantHeld(t)
			x.wantPawl(t, owner, count, true)
		}
		pawlHas(1)
		inner, err := x.lock(h.Context(testkit.Ctx(t)))
		switch {
		case once && !errors.Is(err, engine.ErrReentry):
			t.Errorf("Pawl has it twice: %v", err)
		case !once && err != nil:
			t.Fatal(err)
		case !once:
			pawlHas(map[bool]int{true: 1, false: 2}[k.reads]) // the readers of a process are one, and once
			unlock(t, inner)
		}
		pawlHas(1)
		unlock(t, h)
		x.wantJava(t, "a", false, false, 0)
		x.wantPawl(t, "", 0, false)
		x.wantFields(t, map[string]string{})
	})
}

func unlock(t testing.TB, h hold) {
	t.Helper()
	if err := h.Unlock(testkit.Ctx(t)); err != nil {
		t.Fatal(err)
	}
}
