package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/exit"
	"github.com/pawl-lock/pawl/engine"
)

// seenLock is what the tests read of a line of JSON.
type seenLock struct {
	Name    string
	Kind    string
	Locked  bool
	Gone    bool
	Waiting int
	Holders []struct {
		ID     string
		Engine struct {
			Answered bool
			PID      int
			Host     string
		}
		Uses []struct{ Since string }
	}
	Waits []struct{ Name string }
}

func seenLocks(t *testing.T, text string) (all []seenLock) {
	t.Helper()
	for line := range strings.Lines(text) {
		var one seenLock
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, one)
	}
	return all
}

func TestInspect_HeldLock_NamesItsProcess(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	exec := start(t, env, "exec", "job", "--", "sleep", "60")
	defer exec.wait(t)
	defer exec.cmd.Process.Kill()
	waiter := openEngine(t, s.URL())
	eventually(t, "it is held", func() bool { st, err := waiter.Mutex("job").State(t.Context()); return err == nil && st.Locked })
	waiter.Mutex("job").LockAsync(t.Context())
	eventually(t, "both answer", func() bool {
		v := pawl(t, env, "inspect", "job")
		v.expect(t, 0)
		seen := seenLocks(t, v.stdout.String())
		return len(seen) == 1 && seen[0].Waiting == 1 && len(seen[0].Holders) == 1 && seen[0].Holders[0].Engine.PID == exec.cmd.Process.Pid && len(seen[0].Holders[0].Uses) == 1
	})
	eventually(t, "the text says who holds it", func() bool { // an engine that is busy may miss a look
		v := pawl(t, env, "inspect", "job", "--format", "text")
		v.expect(t, 0, "job: mutex, locked (exclusive)")
		for _, part := range []string{`"pawl exec" on "`, `", pid `, "waiting: 1", `"mutex", for `} {
			if !strings.Contains(v.stdout.String(), part) {
				return false
			}
		}
		return true
	})
	pawl(t, env, "inspect", "job", "free", "--format", "text").expect(t, 0, "free: free")
	eventually(t, "ls says who holds it", func() bool { // an engine that is busy may miss a look
		v := pawl(t, env, "ls")
		v.expect(t, 0)
		seen := seenLocks(t, v.stdout.String())
		return len(seen) == 1 && seen[0].Name == "job" && seen[0].Waiting == 1 && seen[0].Holders[0].Engine.Answered
	})
	pawl(t, env, "ls", "j?b", "--format", "text").expect(t, 0, "KIND", "job")
	if v := pawl(t, env, "ls", "other:*"); v.code != 0 || v.stdout.Len() != 0 {
		t.Errorf("%d: %s", v.code, v.stdout.String())
	}
}

func TestInspect_WrongUsage_SaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	pawl(t, nil, "inspect").expect(t, exit.Usage, "the name of the lock is missing")
	pawl(t, nil, "ls", "a", "b").expect(t, exit.Usage, "give one pattern, in quotes")
	pawl(t, nil, "watch", "a", "b").expect(t, exit.Usage, "give one name or pattern")
	pawl(t, nil, "watch", "--interval", "1ms").expect(t, exit.Usage, "must be at least 100ms")
	pawl(t, nil, "deadlocks", "a").expect(t, exit.Usage, "unexpected argument")
	pawl(t, nil, "inspect", "a", "--format", "yaml").expect(t, exit.Usage, "must be text or jsonl")
}

func TestDeadlocks_Found_ExitsWithOne(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	pawl(t, env, "deadlocks", "--format", "text").expect(t, 0, "no deadlock found")
	a, b := openEngine(t, s.URL()), openEngine(t, s.URL())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	lock := func(e *engine.Engine, name string) *engine.Hold {
		h, err := e.Mutex(name).Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	one, two := lock(a, "one"), lock(b, "two")
	a.Mutex("two").LockAsync(one.Context(ctx))
	b.Mutex("one").LockAsync(two.Context(ctx))
	var v *invocation
	eventually(t, "it is found", func() bool { v = pawl(t, env, "deadlocks"); return v.code == exit.Failed })
	seen := seenLocks(t, v.stdout.String())
	if len(seen) != 1 || len(seen[0].Waits) != 2 || seen[0].Waits[0].Name == seen[0].Waits[1].Name {
		t.Errorf("%+v", seen)
	}
	eventually(t, "the text says so", func() bool { v = pawl(t, env, "deadlocks", "--format", "text"); return v.code == exit.Failed }) // an engine that is busy may miss a look
	v.expect(t, exit.Failed, "deadlock of 2", "waits for one", "waits for two")
}

func TestWatch_Lines_TellWhatChanges(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	h := hold(t, s.URL(), "orders:1")
	v := prepare(t, env, "watch", "orders:*", "--interval", "100ms")
	v.cmd.Stdout = nil
	out, err := v.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer v.cmd.Wait()
	defer v.cmd.Process.Kill()
	dec := json.NewDecoder(out)
	next := func() (one seenLock) {
		if err := dec.Decode(&one); err != nil {
			t.Fatal(err)
		}
		return one
	}
	if one := next(); one.Name != "orders:1" || !one.Locked || one.Holders[0].ID != h.Owner() {
		t.Errorf("%+v", one)
	}
	if err := h.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	one := next()
	for one.Locked { // an engine that is busy may miss a look: that is a change, too
		one = next()
	}
	if one.Name != "orders:1" || !one.Gone {
		t.Errorf("%+v", one)
	}
}
