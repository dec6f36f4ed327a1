package web_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/redistest"
)

func TestStream_RealLocks_AppearChangeAndVanish(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	holder, waiter, looker := open(t, s.URL()), open(t, s.URL()), open(t, s.URL())
	p := serve(t, looker)
	st := follow(t, p, "")
	st.until("nothing is held", func(rows map[string]row) bool { return len(rows) == 0 })

	h := must[*engine.Hold](t)(holder.Mutex("orders:42").Lock(t.Context()))
	st.until("the lock is there, and its engine has answered", func(rows map[string]row) bool {
		r, ok := rows["orders:42"]
		return ok && len(r.Holders) == 1 && r.Holders[0].ID == h.Owner() && r.Holders[0].Service == "shop" && r.Lease > 0 && !r.AtLeast
	})
	f := waiter.Mutex("orders:42").LockAsync(t.Context())
	st.until("somebody waits", func(rows map[string]row) bool { return rows["orders:42"].Waiting == 1 })
	if err := h.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	next := must[*engine.Hold](t)(f.Await(t.Context()))
	st.until("the waiter has it", func(rows map[string]row) bool {
		r := rows["orders:42"]
		return len(r.Holders) == 1 && r.Holders[0].ID == next.Owner() && r.Waiting == 0
	})
	id := st.named()["orders:42"].ID
	if err := next.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	st.until("it is gone", func(rows map[string]row) bool { return len(rows) == 0 })

	var what []string
	v := inspect(t, p, "id="+id)
	for _, e := range v.Events {
		what = append(what, e.What)
	}
	got := strings.Join(what, " ")
	waiting := strings.Count(got, "waiting") // a waiter whose engine misses a look seems to leave, and to come back
	if v.Name != "orders:42" || !strings.HasPrefix(got, "free ") || strings.Count(got, "held") != 2 || waiting < 2 || waiting%2 != 0 {
		t.Errorf("%q: the latest first: %s", v.Name, got)
	}
}

func TestStream_EngineOnlyWaits_IsAmongTheEngines(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	holder, waiter := open(t, s.URL()), open(t, s.URL())
	h := must[*engine.Hold](t)(holder.Mutex("orders:42").Lock(t.Context()))
	for range 3 {
		waiter.Mutex("orders:42").LockAsync(t.Context())
	}
	holderID, _, _ := strings.Cut(h.Owner(), ":")
	want := map[string]string{"the holder": "holds 1, waits for 0;", "the waiter": "holds 0, waits for 1;"}
	st := follow(t, serve(t, open(t, s.URL())), "")
	st.until("each engine does its part", func(rows map[string]row) bool { // one that is busy does not answer every look
		got := make(map[string]string)
		engines, _ := st.status["engines"].([]any)
		for _, e := range engines {
			e := e.(map[string]any)
			who := "the waiter"
			if e["id"] == holderID {
				who = "the holder"
			}
			got[who] += fmt.Sprintf("holds %v, waits for %v;", e["held"], e["waiting"])
		}
		return rows["orders:42"].Waiting == 3 && maps.Equal(got, want)
	})
}

func TestStream_Reconnects_LosesNothing(t *testing.T) {
	t.Parallel()
	f := new(fake)
	f.many(1000, "a:1")
	p := serve(t, f)
	other := follow(t, p, "") // keeps the source looking
	st := follow(t, p, "")
	st.until("all are there", func(rows map[string]row) bool { return len(rows) == 1000 })
	if st.resets != 1 {
		t.Errorf("%d resets", st.resets)
	}
	before := st.rows
	_ = st.body.Close()
	f.hold("orders:00007", "b:1")
	f.set(func() { delete(f.locks, "orders:00008") })
	other.until("it has changed", func(rows map[string]row) bool { return len(rows) == 999 && rows["orders:00007"].Holders[0].ID == "b:1" })

	again := follow(t, p, st.last)
	again.rows = before
	again.until("what came meanwhile is there", func(rows map[string]row) bool { return len(rows) == 999 && rows["orders:00007"].Holders[0].ID == "b:1" })
	if again.resets != 0 {
		t.Error("it got everything again")
	}
	for _, last := range []string{"", "another-process.3", st.last + "9", "x"} {
		fresh := follow(t, p, last)
		fresh.until("all are there", func(rows map[string]row) bool { return len(rows) == 999 })
		if fresh.resets != 1 {
			t.Errorf("after %q: %d resets", last, fresh.resets)
		}
	}
}

func TestStream_NobodyLooks_AsksNothing(t *testing.T) {
	t.Parallel()
	f := new(fake)
	p := serve(t, f)
	st := follow(t, p, "")
	st.until("a look", func(map[string]row) bool { return true })
	_ = st.body.Close()
	looks, since := -1, cputime.Now()
	eventually(t, "looks end", func() bool {
		f.set(func() {
			if f.looks != looks {
				looks, since = f.looks, cputime.Now()
			}
		})
		return since.Elapsed() > 5*period // which this process could have used for one
	})
	f.hold("late", "a:1")
	again := follow(t, p, "")
	again.event()
	again.until("the first rows are not old", func(rows map[string]row) bool { return len(rows) == 1 })
	if !again.named()["late"].AtLeast {
		t.Error("nobody knows since when it is held")
	}
}

func TestStream_PageIsBehindTheLog_GetsEverythingOnce(t *testing.T) {
	t.Parallel()
	f := new(fake)
	f.many(10, "a:0")
	p := serve(t, f)
	fast := follow(t, p, "")
	fast.until("all are there", func(rows map[string]row) bool { return len(rows) == 10 })
	old := fast.last
	for looks := 0; looks < 70; { // the log has fewer; what a look has changed comes as events of its own before its status
		if fast.event() == "status" {
			looks++
		}
	}
	f.many(10, "b:0")
	fast.until("all have changed", func(rows map[string]row) bool { return rows["orders:00003"].Holders[0].ID == "b:0" })
	slow := follow(t, p, old)
	slow.until("all are there", func(rows map[string]row) bool { return len(rows) == 10 && rows["orders:00003"].Holders[0].ID == "b:0" })
	if slow.resets != 1 {
		t.Errorf("%d resets", slow.resets)
	}
}

func TestStream_ServerIsAway_KeepsRowsAndSaysSo(t *testing.T) {
	t.Parallel()
	f := new(fake)
	f.many(3, "a:1")
	p := serve(t, f)
	st := follow(t, p, "")
	st.until("all are there", func(rows map[string]row) bool { return len(rows) == 3 })
	f.set(func() { f.locks, f.err = nil, errors.New("no server") })
	st.until("it says so", func(rows map[string]row) bool {
		return st.status["error"] == "no server" && st.status["locks"] == 3.0 && len(rows) == 3
	})
	f.set(func() { f.err = nil })
	st.until("they are gone", func(rows map[string]row) bool { return st.status["error"] == nil && len(rows) == 0 })
}

// While one node of a cluster is down, every look has an error; locks of the others come and go.
func TestStream_NodeIsDown_ForgetsWhoseLeaseHasEnded(t *testing.T) {
	t.Parallel()
	f := new(fake)
	f.many(3, "a:1")
	f.set(func() { f.locks["orders:00001"].TTL = time.Second })
	p := serve(t, f)
	st := follow(t, p, "")
	st.until("all are there", func(rows map[string]row) bool { return len(rows) == 3 })
	f.set(func() {
		f.err = errors.New("a node is down")
		delete(f.locks, "orders:00001")
		delete(f.locks, "orders:00002") // that may be on the node
	})
	st.until("a lease has ended", func(rows map[string]row) bool {
		return st.status["error"] != nil && st.status["locks"] == 2.0 && len(rows) == 2
	})
}

func TestStream_TooManyLocks_ShowsSome(t *testing.T) {
	t.Parallel()
	f := new(fake)
	f.many(20_100, "a:1")
	p := serve(t, f)
	st := follow(t, p, "")
	st.until("it says so", func(rows map[string]row) bool { return st.status["truncated"] == true && len(rows) == 20_000 })
}

func TestStream_LeaseIsRenewed_MovesOnlyThen(t *testing.T) {
	t.Parallel()
	f := new(fake)
	f.hold("x", "a:1")
	ends := time.Now().Add(30 * time.Second)
	f.ends = ends
	p := serve(t, f)
	st := follow(t, p, "")
	st.until("it is there", func(rows map[string]row) bool { return len(rows) == 1 })
	lease := st.named()["x"].Lease
	for i := range 10 { // the clocks of two looks differ by some milliseconds
		f.set(func() { f.ends = ends.Add(time.Duration(i) * 5 * time.Millisecond) })
		st.until("a look", func(map[string]row) bool { return true })
	}
	if now := st.named()["x"].Lease; now != lease {
		t.Errorf("the lease moved by %d ms", now-lease)
	}
	f.set(func() { f.ends = ends.Add(10 * time.Second) })
	st.until("it was renewed", func(rows map[string]row) bool { return rows["x"].Lease > lease+5000 })
}
