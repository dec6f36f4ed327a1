package interop

import (
	"fmt"
	"os"
	"testing"

	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
)

// The permits of a process that is killed go to waiters on the other side when their leases end.
// Redisson renews no permits, so those of Java have a fixed lease; those of Pawl are renewed.
func TestPermitsOfAKilledProcessGoToTheOther(t *testing.T) {
	if urls := testkit.PeerArgs(); len(urls) > 0 {
		e := testkit.Open(t, urls[0], testkit.LeaseOf(quick.lease))
		if _, err := e.PermitSemaphore("dead").Acquire(testkit.Ctx(t), 1); err != nil {
			t.Fatal(err)
		}
		fmt.Println("held")
		_, _ = os.Stdin.Read(make([]byte, 1)) // it never comes
		return
	}
	t.Parallel()
	for _, g := range permitGrounds {
		t.Run(g.name+"/Java", func(t *testing.T) {
			t.Parallel()
			s := newStage(t, g, settings{lease: quick.lease, ownJVM: true})
			sem := s.engines[0].PermitSemaphore("dead")
			if err := sem.SetPermits(testkit.Ctx(t), 1); err != nil {
				t.Fatal(err)
			}
			id := s.jvm.ask("a", "permits-take", s.clients[0]+"/dead", 1, 0, s.lease.Milliseconds()).want(t)
			waits := sem.AcquireAsync(testkit.Within(t, patience), 1)
			s.jvm.kill(t)
			killed := cputime.Now()
			h, err := waits.Await(testkit.Within(t, patience))
			if err != nil || h.PermitIDs()[0] == id {
				t.Fatalf("%v, %v", h, err)
			}
			wantWithin(t, "Pawl", killed, s.lease+grace)
			unlock(t, h)
		})
		t.Run(g.name+"/Go", func(t *testing.T) {
			t.Parallel()
			s := newStage(t, g, quick)
			sem := s.engines[0].PermitSemaphore("dead")
			if err := sem.SetPermits(testkit.Ctx(t), 1); err != nil {
				t.Fatal(err)
			}
			victim, held := testkit.StartPeer(t, s.sites[0].url()), make(chan struct{})
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
			took := s.jvm.ask("a", "permits-take", s.clients[0]+"/dead", 1, 60_000, 60_000)
			for began := cputime.Now(); began.Elapsed() < s.lease*4/3; testkit.Pause(nil, s.lease/100) { // it is renewed
				if n, err := sem.Acquired(testkit.Ctx(t)); n != 1 || err != nil || took.arrived() {
					t.Fatalf("%d are held, %v; Java has one: %t", n, err, took.arrived())
				}
			}
			if err := victim.Kill(); err != nil {
				t.Fatal(err)
			}
			killed := cputime.Now()
			if id := took.want(t); len(id) != 32 {
				t.Fatalf("Java has %q", id)
			} else if ok, err := sem.ForceRelease(testkit.Ctx(t), id); !ok || err != nil {
				t.Error(ok, err)
			}
			wantWithin(t, "Java", killed, s.lease+grace)
			<-ended
		})
	}
}
