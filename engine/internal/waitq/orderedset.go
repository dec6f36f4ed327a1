package waitq

import (
	"cmp"
	"slices"
)

// Set is things that come and go, and are told in the order in which they came: what follows
// must not hang on the order of a map. The zero value is empty.
type Set[T comparable] struct {
	came map[T]uint64
	last uint64
}

// Add puts v in, unless it is there.
func (s *Set[T]) Add(v T) {
	if _, there := s.came[v]; there {
		return
	}
	if s.came == nil {
		s.came = make(map[T]uint64, 1)
	}
	s.last++
	s.came[v] = s.last
}

// Remove takes v out, if it is there.
func (s *Set[T]) Remove(v T) { delete(s.came, v) }

// Len is how many there are.
func (s *Set[T]) Len() int { return len(s.came) }

// InOrder are all, the first to come first.
func (s *Set[T]) InOrder() []T {
	if len(s.came) == 0 {
		return nil
	}
	all := make([]T, 0, len(s.came)) // most holds have one context: nothing else is allocated
	for v := range s.came {
		all = append(all, v)
	}
	slices.SortFunc(all, func(a, b T) int { return cmp.Compare(s.came[a], s.came[b]) })
	return all
}
