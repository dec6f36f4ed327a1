package waitq

import (
	"slices"
	"testing"
)

func TestASetTellsItsThingsInTheOrderInWhichTheyCame(t *testing.T) {
	t.Parallel()
	var s Set[int]
	if s.Len() != 0 || len(s.InOrder()) != 0 {
		t.Errorf("an empty one has %d", s.Len())
	}
	s.Remove(1)
	for _, v := range []int{5, 3, 9, 1, 3, 7, 2, 8} {
		s.Add(v)
	}
	s.Remove(9)
	s.Remove(5)
	s.Add(5) // anew
	if got, want := s.InOrder(), []int{3, 1, 7, 2, 8, 5}; !slices.Equal(got, want) || s.Len() != len(want) {
		t.Errorf("%v (%d), want %v", got, s.Len(), want)
	}
}

// Each hold of a RedLock or a MultiLock has one, and each that a context was made of.
func TestTheOrderOfASetIsOneAllocation(t *testing.T) {
	var s Set[any]
	for v, want := range []float64{0, 1, 1, 1} {
		if got := testing.AllocsPerRun(100, func() { s.InOrder() }); got > want {
			t.Errorf("%v allocations for %d things", got, v)
		}
		s.Add(v)
	}
}
