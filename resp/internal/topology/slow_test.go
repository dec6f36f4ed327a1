package topology

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

func TestSlowServers_Last_AreAskedLast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := patient()
		ask := func(addrs ...string) time.Duration {
			t.Helper()
			var o oracle
			began := time.Now()
			if _, err := askFirst(t.Context(), s, s.slow.last(s.clock.Now(), addrs), o.ask); err != nil {
				t.Fatal(err)
			}
			return time.Since(began)
		}
		if took := ask("silent", "unwell", "10ms"); took != HedgeDelay+10*time.Millisecond {
			t.Errorf("the first time it took %v", took)
		}
		if took := ask("silent", "unwell", "10ms"); took != 10*time.Millisecond {
			t.Errorf("the second time it took %v", took)
		}
		if got, want := s.slow.last(s.clock.Now(), []string{"silent", "a", "unwell", "b"}), []string{"a", "unwell", "b", "silent"}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		time.Sleep(slowFor)
		if took := ask("silent", "10ms"); took != HedgeDelay+10*time.Millisecond {
			t.Errorf("after lateFor it took %v", took)
		}
		// One that is slow, and then is not.
		if took := ask("400ms", "250ms"); took != 400*time.Millisecond {
			t.Errorf("the slow one took %v", took)
		}
		if got := s.slow.last(s.clock.Now(), []string{"silent", "400ms", "250ms"}); got[2] != "silent" {
			t.Errorf("%v: it has won", got)
		}
	})
}

// A hint names a server that knows for certain. Of the others as many lively ones are
// asked as there are.
func TestCandidates_SlowServers_AreLastButForTheHint(t *testing.T) {
	t.Parallel()
	s := patient()
	var late, known []string
	for i := range 10 * maxKnown {
		addr := fmt.Sprintf("n%d:1", i)
		known = append(known, addr)
		if i%10 != 0 {
			late = append(late, addr)
		}
	}
	s.slow.note(s.clock.Now(), "", late)
	for range 10 {
		got := s.candidates("n1:1", "", known, []string{"n2:1", "seed:1", "n10:1"})
		if got[0] != "n1:1" || got[len(got)-1] != "n2:1" || len(got) != 1+maxKnown+2 {
			t.Fatalf("%v", got)
		}
		for _, addr := range got[1 : len(got)-1] {
			if slices.Contains(late, addr) {
				t.Fatalf("%s is late: %v", addr, got)
			}
		}
	}
}

func TestSlowServers_Answer_AreForgotten(t *testing.T) {
	t.Parallel()
	var l slowServers
	now := clock.Instant(time.Hour)
	l.note(now, "a", []string{"b", "c"})
	l.note(now.Add(time.Second), "b", []string{"d"})
	if got := l.last(now.Add(slowFor-1), []string{"d", "c", "b", "a"}); !slices.Equal(got, []string{"b", "a", "d", "c"}) {
		t.Errorf("%v", got)
	}
	l.note(now.Add(slowFor), "a", nil)
	if n := len(l.mu.until); n != 1 {
		t.Errorf("%d are remembered", n)
	}
}

// Nodes whose machines are gone cost a head start once. The answer is as old as the one that
// gives it, so each search counts.
func TestSlowServers_DeadServer_CostsOneHedgeDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var addrs []string
		for i := range 5 {
			addrs = append(addrs, fmt.Sprintf("dead%d:1", i))
			w.set(addrs[i], pipeServer{slow: time.Hour})
		}
		w.set("a:1", pipeServer{answer: servesAll("a:1")})
		ctx, cancel := context.WithCancel(t.Context())
		s := newProbes(ctx, w.config(Cluster, append(addrs, "a:1")...), SearchTimeout)
		f := newFinder(w.config(Cluster, append(addrs, "a:1")...), s)
		defer w.close()
		defer s.close()
		defer cancel()
		took := make([]time.Duration, 8)
		for i := range took {
			start := time.Now()
			if _, err := f.find(ctx, "", false); err != nil {
				t.Fatal(err)
			}
			s.tidy(false)
			took[i] = time.Since(start)
		}
		var all time.Duration
		for _, d := range took {
			all += d
		}
		if all > 5*HedgeDelay {
			t.Errorf("five dead ones cost %v", took)
		}
	})
}

// All known addresses are dead, as they are where all pods have got others at once. The one that
// answered last is the second to be asked, and the first configured one the third at the latest.
func TestCandidates_TheLastGoodAndTheConfiguredOnesAreAmongTheFirst(t *testing.T) {
	t.Parallel()
	s := patient()
	var known []string
	for i := range 40 {
		known = append(known, fmt.Sprintf("n%d:1", i))
	}
	for range 100 {
		if got := s.candidates("", "seed:1", known, []string{"seed:1"}); got[1] != "seed:1" {
			t.Fatalf("%v", got[:4])
		}
		if got := s.candidates("", "good:1", known, []string{"seed:1"}); got[1] != "good:1" || got[2] != "seed:1" {
			t.Fatalf("%v", got[:4])
		}
		if got := s.candidates("hint:1", "", nil, []string{"seed:1"}); !slices.Equal(got, []string{"hint:1", "seed:1"}) {
			t.Fatalf("%v", got)
		}
	}
}
