package redistest

import "testing"

func TestCluster_Serves_MovesAndFailsOver(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, true)
	if n := len(c.Primaries()); n != 3 {
		t.Fatalf("%d primaries", n)
	}
	c.Do("x", "SET", "x", "1")
	from := c.Owner(c.Slot("x"))
	var to *Server
	for _, s := range c.Primaries() {
		if s != from {
			to = s
		}
	}
	c.Move(c.Slot("x"), to)
	if v := to.Do("GET", "x"); v != "1" {
		t.Errorf("GET at the new owner: %v", v)
	}
	replica := c.ReplicaOf(to)
	c.Failover(replica)
	if v := c.Do("x", "GET", "x"); v != "1" || c.Owner(c.Slot("x")) != replica {
		t.Errorf("GET after the failover: %v", v)
	}
}

func TestSentinels_PrimaryKilled_IsReplaced(t *testing.T) {
	t.Parallel()
	r := StartSentinel(t)
	before := r.Primary()
	before.Kill()
	r.AwaitOther(before)
	await(t, "another primary serves", func() bool { return r.Primary() != before })
}

func TestReplicated_PromotedByHand_Serves(t *testing.T) {
	t.Parallel()
	r := StartReplicated(t, 2)
	next := r.Servers()[2]
	r.Promote(next)
	r.AwaitInStep()
	if r.Primary() != next {
		t.Error("another one is the primary")
	}
}

// What a link holds is not lost until it is cut.
func TestLink_Replication_IsHeldUpAndCut(t *testing.T) {
	t.Parallel()
	r := StartReplicated(t, 1)
	primary, replica := r.Servers()[0], r.Servers()[1]
	l := r.Through(replica, primary)
	get := func() any { return replica.Do("GET", "x") }

	primary.Do("SET", "x", "1")
	await(t, "it arrives", func() bool { return get() == "1" })
	l.Hold()
	primary.Do("SET", "x", "2")
	if get() != "1" {
		t.Errorf("held: x is %v", get())
	}
	l.Release()
	await(t, "it arrives after all", func() bool { return get() == "2" })
	l.Hold()
	primary.Do("SET", "x", "3")
	l.Cut()
	replica.Do("REPLICAOF", "NO", "ONE")
	if get() != "2" {
		t.Errorf("cut: x is %v", get())
	}
}
