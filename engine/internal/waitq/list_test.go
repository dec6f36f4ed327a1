package waitq

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestListsAgreeWithAModel moves elements between two lists at random, against two
// slices.
func TestListsAgreeWithAModel(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	elems := make([]Elem[int], 12)
	for i := range elems {
		elems[i].Value = i + 1
	}
	var lists [2]List[int]
	var models [2][]int
	for range 200_000 {
		which := rng.IntN(2)
		l, model := &lists[which], &models[which]
		i := rng.IntN(len(elems))
		e, here := &elems[i], slices.Index(*model, i+1)
		queued := here >= 0 || slices.Contains(models[1-which], i+1)
		switch op := rng.IntN(8); {
		case op < 4:
			if !queued {
				l.PushBack(e)
				*model = append(*model, i+1)
			}
		case op < 7:
			if got := l.Remove(e); got != (here >= 0) {
				t.Fatalf("Remove = %v of an element that is at place %d", got, here)
			}
			if here >= 0 {
				*model = slices.Delete(*model, here, here+1)
			}
		default:
			v, ok := l.Front()
			if ok {
				l.Remove(&elems[v-1])
			}
			if ok != (len(*model) > 0) || ok && v != (*model)[0] {
				t.Fatalf("Front = %d, %v; the model is %v", v, ok, *model)
			}
			if ok {
				*model = (*model)[1:]
			}
		}
		for i := range lists {
			compare(t, &lists[i], models[i])
		}
		for i := range elems {
			in := slices.Contains(models[0], i+1) || slices.Contains(models[1], i+1)
			if elems[i].Queued() != in {
				t.Fatalf("Queued = %v, want %v", elems[i].Queued(), in)
			}
		}
	}
}

// compare walks the links both ways.
func compare(t *testing.T, l *List[int], model []int) {
	t.Helper()
	if l.Len() != len(model) {
		t.Fatalf("Len = %d, want %d", l.Len(), len(model))
	}
	front, ok := l.Front()
	if ok != (len(model) > 0) || ok && front != model[0] {
		t.Fatalf("Front = %d, %v; the model is %v", front, ok, model)
	}
	var there, back []int
	for e := l.front; e != nil; e = e.next {
		there = append(there, e.Value)
	}
	for e := l.back; e != nil; e = e.prev {
		back = append(back, e.Value)
	}
	slices.Reverse(back)
	if !slices.Equal(there, model) || !slices.Equal(back, model) {
		t.Fatalf("forwards %v, backwards %v, want %v", there, back, model)
	}
}

func TestPushBackOfAQueuedElementPanics(t *testing.T) {
	t.Parallel()
	var a, b List[int]
	var e Elem[int]
	a.PushBack(&e)
	for _, l := range []*List[int]{&a, &b} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			l.PushBack(&e)
		}()
	}
	if a.Len() != 1 || b.Len() != 0 {
		t.Errorf("lengths %d and %d", a.Len(), b.Len())
	}
}

// TestChainIsInOrderAndLeavesItsElementsFree pushes and pops at random, against a slice.
func TestChainIsInOrderAndLeavesItsElementsFree(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	elems := make([]Elem[int], 8)
	free := make([]int, len(elems))
	for i := range elems {
		elems[i].Value, free[i] = i, i
	}
	var c Chain[int]
	var model []int
	for range 20_000 {
		if rng.IntN(2) == 0 && len(free) > 0 {
			i := free[0]
			free = free[1:]
			c.Push(&elems[i])
			model = append(model, i)
			continue
		}
		v, ok := c.Pop()
		if ok != (len(model) > 0) || ok && v != model[0] {
			t.Fatalf("Pop = %d, %v; the model is %v", v, ok, model)
		}
		if ok {
			model, free = model[1:], append(free, v)
			var l List[int]
			l.PushBack(&elems[v])
			l.Remove(&elems[v])
		}
	}
}
