package queue

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
