// Package enginetest lets your own tests use real locks: it gives them an engine, a Redis
// server inside the test's process, and the faults that a lock must survive.
//
//	func TestOnlyOneReplicaBills(t *testing.T) {
//		env := enginetest.New(t)
//		env.Steal("billing") // another process has the lock
//		ran, err := billing.RunOnce(t.Context(), env.Engine)
//		if ran || err != nil {
//			t.Errorf("ran %t, err %v", ran, err)
//		}
//	}
//
// Lose has a holder lose its lock now, Steal and Expire leave it to the next renewal; Down, Delay,
// DropReplies and Refuse are what a network and a server may do.
//
// You need not install anything. Everything is closed when the test ends. A test that
// leaves a lock held fails, because the code under test has forgotten an Unlock.
//
// NewOn takes a real server instead, for load.
//
// Leases are short (see Lease), so that a test sees a loss soon. If your machine may pause
// for longer than that, set a longer one. Or use NewVirtual, where time is virtual. An Env
// of New does not work in a bubble of testing/synctest: its event loops wait in the kernel,
// and meanwhile the bubble's time stands still.
package enginetest
