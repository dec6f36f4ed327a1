package lock

import "testing"

func TestARenewalCoversWhatNeedsNoMoreReplicas(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b Acks
		ok   bool
	}{
		{AllReplicas, MajorityOfReplicas, true}, {AllReplicas, 1, true}, {AllReplicas, 2, false}, {AllReplicas, 0, true},
		{MajorityOfReplicas, 1, true}, {MajorityOfReplicas, AllReplicas, false}, {MajorityOfReplicas, 2, false},
		{2, 1, true}, {2, 2, true}, {2, 3, false}, {2, AllReplicas, false}, {0, 0, true}, {0, 1, false},
	} {
		if covers(c.a, c.b) != c.ok {
			t.Errorf("covers(%d, %d) is %t", c.a, c.b, !c.ok)
		}
	}
}
