package interop

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
)

// grace is how much longer than the lease a lock of the dead may stay taken: the server ends
// it, and the waiter has to notice.
const grace = 3 * time.Second

// The locks of a JVM that is killed go to Pawl when their leases end.
func TestLocksOfAKilledJVMGoToPawl(t *testing.T) {
	t.Parallel()
	onEachGround(t, func(t *testing.T, g ground, own []kind) {
		s := newStage(t, g, settings{lease: quick.lease, ownJVM: true})
		var granted []chan error
		var all []*subject
		for _, k := range withReaders(own, g) {
			x := s.subject(t, k, "of the dead")
			x.ask("a", "lock", -1).want(t)
			all = append(all, x)
			c, y := make(chan error, 1), x.rival()
			granted = append(granted, c)
			go func() {
				h, err := y.lock(testkit.Within(t, patience))
				c <- err
				if err == nil {
					<-h.Done() // when the engine is closed
				}
			}()
		}
		for _, x := range all {
			x.awaitRenewal(t)
		}
		s.jvm.kill(t)
		killed := cputime.Now()
		for i, x := range all {
			if left := x.ttl(t); left <= 0 && len(granted[i]) == 0 {
				t.Errorf("%s is free", x.name)
			}
		}
		for i, x := range all {
			if err := testkit.Receive(t, granted[i]); err != nil {
				t.Errorf("%s: %v", x.name, err)
			}
			x.wantSoon(t, killed)
		}
	})
}

// The locks of a Go process that is killed go to Redisson when their leases end.
func TestLocksOfAKilledGoProcessGoToJava(t *testing.T) {
	if urls := testkit.PeerArgs(); len(urls) > 0 {
		beKilled(t, urls)
		return
	}
	t.Parallel()
	onEachGround(t, func(t *testing.T, g ground, own []kind) {
		s := newStage(t, g, quick)
		var args []any
		for _, at := range s.sites {
			args = append(args, at.url())
		}
		args = append(args, g.name)
		victim, held := testkit.StartPeer(t, args...), make(chan struct{})
		ended := testkit.Background(func() error {
			return victim.Follow(func(text string) {
				if text == "held" {
					close(held)
				}
			})
		})
		select {
		case <-held:
		case err := <-ended:
			t.Fatalf("the process has ended: %v", err)
		}
		var waiting []answer
		var all []*subject
		for _, k := range withReaders(own, g) {
			x := s.subject(t, k, "of the dead")
			all = append(all, x)
			waiting = append(waiting, x.rival().ask("a", "lock", -1))
		}
		for i, x := range all {
			x.awaitRenewal(t)
			if waiting[i].arrived() {
				t.Errorf("%s: both have it", x.name)
			}
		}
		if err := victim.Kill(); err != nil {
			t.Fatal(err)
		}
		killed := cputime.Now()
		for i, x := range all {
			waiting[i].want(t)
			x.wantSoon(t, killed)
			x.rival().ask("a", "unlock").want(t)
		}
		<-ended
	})
}

// beKilled is the process that is killed: it takes the locks of a ground and says so.
func beKilled(t *testing.T, args []string) {
	s := new(stage)
	urls, name := args[:len(args)-1], args[len(args)-1]
	for _, url := range urls {
		s.engines = append(s.engines, testkit.Open(t, url, testkit.LeaseOf(quick.lease)))
	}
	for _, k := range append(slices.Clone(kinds), reading) {
		for _, g := range k.grounds() {
			if g.name == name {
				s.subject(t, k, "of the dead").mustLock(t)
			}
		}
	}
	fmt.Println("held")
	_, _ = os.Stdin.Read(make([]byte, 1)) // it never comes
}

// awaitRenewal waits until the holder has renewed the lease.
func (x *subject) awaitRenewal(t testing.TB) {
	t.Helper()
	before := x.ttl(t)
	testkit.Eventually(t, "the lease of "+x.name+" is renewed", func() bool {
		now := x.ttl(t)
		renewed := now > before
		before = now
		return renewed
	})
}

// wantSoon fails the test if the lease of the dead ended too long ago.
func (x *subject) wantSoon(t testing.TB, killed cputime.Mark) {
	t.Helper()
	wantWithin(t, x.name+": the other", killed, x.stage.lease+grace)
}

func wantWithin(t testing.TB, who string, killed cputime.Mark, most time.Duration) {
	t.Helper()
	took := killed.Elapsed()
	t.Logf("%s has it %v after the kill", who, took.Round(time.Millisecond))
	if took > most {
		t.Errorf("%s has it only %v after the kill, want at most %v", who, took, most)
	}
}
