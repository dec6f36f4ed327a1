package fifo

import (
	"math/rand/v2"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A ring does what a slice does, through growth and wrapping.
func TestRing_RandomOperations_HoldsWhatASliceHolds(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	draw := rand.New(rand.NewPCG(seed, 1))
	var r Ring[int]
	var model []int
	for i := range 20_000 {
		switch k := draw.IntN(100); {
		case k < 45 || k < 60 && i/1000%2 == 0:
			r.Push(i)
			model = append(model, i)
		case len(model) == 0:
			r.Shrink()
			if r.Room() > ringMin {
				t.Fatalf("an empty ring keeps room for %d", r.Room())
			}
		case k < 65:
			r.Unpush()
			model = model[:len(model)-1]
		default:
			if got := r.Pop(); got != model[0] {
				t.Fatalf("popped %d, want %d", got, model[0])
			}
			model = model[1:]
		}
		if r.Len() != len(model) || len(model) > 0 && (*r.Front() != model[0] || *r.Back() != model[len(model)-1]) {
			t.Fatalf("after %d steps: %d values, want %d", i, r.Len(), len(model))
		}
		for j := range model {
			if *r.At(j) != model[j] {
				t.Fatalf("value %d is %d, want %d", j, *r.At(j), model[j])
			}
		}
	}
}

// What has been popped is not kept alive by the array.
func TestRing_Pop_ForgetsTheValue(t *testing.T) {
	t.Parallel()
	var r Ring[*int]
	for i := range 3 {
		r.Push(&i)
	}
	r.Pop()
	r.Unpush()
	kept := 0
	for _, p := range r.buf {
		if p != nil {
			kept++
		}
	}
	if kept != 1 {
		t.Errorf("the array keeps %d values, want 1", kept)
	}
}
