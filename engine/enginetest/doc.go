// Package enginetest lets a user's own tests run on real locks: an engine on a
// Redis server inside the test's process, and the faults that a lock must survive.
//
//	func TestOnlyOneReplicaBills(t *testing.T) {
//		env := enginetest.New(t)
//		env.Steal("billing") // somebody else is at it
//		ran, err := billing.RunOnce(t.Context(), env.Engine)
//		if ran || err != nil {
//			t.Errorf("ran %t, err %v", ran, err)
//		}
//	}
//
// Nothing has to be installed. Everything is closed with the test, and a test that
// leaves a lock held fails: the code under test has forgotten an Unlock.
//
// Leases are short (see Lease), so that a test sees a loss soon; a test whose
// machine may stand still for longer than that gives its own. Or time itself is
// virtual: see NewVirtual. An Env of New does not fit into a bubble of
// testing/synctest: its event loops wait in the kernel, and while anybody in a
// bubble does, the bubble's time stands still.
package enginetest
