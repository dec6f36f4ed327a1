package redisson

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
)

// T22: in Redisson a process that waits for two kinds of lock of one name listens to the channel of
// the first for both. An engine that has just waited for one kind, and still listens, hears the
// channel of the next.
func TestAWaiterHearsTheChannelOfItsKind(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		e, other := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
		latch, sem := e.Latch("L"), e.Semaphore("L")
		wait := func(m engine.Mutex) func() <-chan error {
			return func() <-chan error {
				return testkit.Background(func() error {
					h, err := m.Lock(testkit.Ctx(t))
					if err != nil {
						return err
					}
					return h.Unlock(testkit.Ctx(t))
				})
			}
		}
		lock := func(m engine.Mutex) func() func() {
			return func() func() {
				h := testkit.MustLock(t, m)
				return func() { testkit.MustUnlock(t, h) }
			}
		}
		for round := range 2 {
			for _, x := range []struct {
				what, channel string
				taken         func() (end func())
				waits         func() <-chan error
			}{
				{"Mutex", javaChannel("L"), lock(other.Mutex("L")), wait(e.Mutex("L"))},
				{"RWMutex", "redisson_rwlock:{L}", lock(other.RWMutex("L").Writer()), wait(e.RWMutex("L").Reader())},
				{"Semaphore", semaphoreChannel("L"), func() func() {
					return func() { redisson{s, javaA}.releasePermits(t, "L", 1) }
				}, func() <-chan error {
					return testkit.Background(func() error {
						p, err := sem.Acquire(testkit.Ctx(t), 1)
						if err != nil {
							return err
						}
						return p.Release(testkit.Ctx(t))
					})
				}},
				{"Latch", latchChannel("L"), func() func() {
					redisson{s, javaA}.trySetCount(t, "L", 1)
					return func() { redisson{s, javaA}.countDown(t, "L") }
				}, func() <-chan error { return testkit.Background(func() error { return latch.Await(testkit.Ctx(t)) }) }},
			} {
				end := x.taken()
				waits := x.waits()
				testkit.Eventually(t, x.what+" listens to its channel", func() bool {
					inside := e.Stats()
					return subscribers(s, x.channel) == 1 && inside.InFlight == 0 && inside.Waiting == 1
				})
				start := cputime.Now()
				end()
				if err := testkit.Receive(t, waits); err != nil {
					t.Errorf("round %d, %s: %v", round, x.what, err)
				}
				if d := start.Elapsed(); d > 3*time.Second {
					t.Errorf("round %d, %s: woken after %v: not by the message", round, x.what, d)
				}
				s.Do("DEL", "L")
			}
		}
	})
}
