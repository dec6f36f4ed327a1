package queue

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// answered answers the one message that is out, and returns what goes on, with a message each.
func answered(o *Offers[int]) (gone []int) {
	if !o.Answered() {
		return nil
	}
	for e, ok := o.Due(); ok; e, ok = o.Due() {
		gone = append(gone, e)
		o.Remove(e)
		o.Sent()
	}
	return gone
}

func TestWhatNobodyTakesGoesOnWithTheAnswer(t *testing.T) {
	t.Parallel()
	var o Offers[int]
	if o.Open() {
		t.Error("nothing is awaited, and yet something goes on offer")
	}
	o.Sent()
	o.Push(1)
	o.Push(2)
	if gone := answered(&o); !slices.Equal(gone, []int{1, 2}) || o.Len() != 0 {
		t.Errorf("nobody came, and %v went on", gone)
	}
}

func TestWhereManyComeTheOldestGoesOnAndTheOthersWaitForItsAnswer(t *testing.T) {
	t.Parallel()
	var o Offers[int]
	o.Sent()
	for e := range 5 {
		o.Push(e)
	}
	o.Take(o.Oldest())
	if gone := answered(&o); !slices.Equal(gone, []int{1}) {
		t.Fatalf("%v went on, not the oldest", gone)
	}
	o.Push(5) // 2, 3 and 4 waited before
	o.Take(o.Oldest())
	if gone := answered(&o); !slices.Equal(gone, []int{3, 4}) || o.Len() != 1 {
		t.Fatalf("%v went on, not those that have waited for two answers", gone)
	}
}

// What goes on may have nothing to send that others could wait for.
func TestNothingWaitsForNothing(t *testing.T) {
	t.Parallel()
	var o Offers[int]
	o.Sent()
	for e := range 3 {
		o.Push(e)
	}
	o.Take(0)
	o.Answered()
	for want := 1; want < 3; want++ {
		if e, ok := o.Due(); !ok || e != want {
			t.Fatalf("%d, %v: %d is on offer for ever", e, ok, want)
		}
		o.Remove(want)
	}
}

// While somebody goes on with what is due, others only tell him of more.
func TestOnlyOneGoesOn(t *testing.T) {
	t.Parallel()
	var o Offers[int]
	o.Sent()
	o.Push(1)
	if !o.Answered() {
		t.Fatal("nobody goes on")
	}
	o.Sent()
	o.Push(2)
	if o.Answered() || o.LetAll() {
		t.Fatal("two go on")
	}
	for want := 1; want <= 2; want++ {
		if e, ok := o.Due(); !ok || e != want {
			t.Fatalf("due is %d, %v", e, ok)
		}
		o.Remove(want)
	}
	if _, ok := o.Due(); ok || o.LetAll() {
		t.Error("there is nothing left")
	}
}

// TestNothingIsOnOfferForLong does what happens to offers in a random order: they keep their
// order, none is lost, and none is on offer for more than two answers.
func TestNothingIsOnOfferForLong(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var o Offers[int]
	var model []int
	answers, out, next := 0, 0, 0
	since := make(map[int]int) // how many answers there had been
	leave := func(i int) int {
		e := model[i]
		model = slices.Delete(model, i, i+1)
		if waited := answers - since[e]; waited > 2 {
			t.Fatalf("%d was on offer for %d answers", e, waited)
		}
		return e
	}
	for range 200_000 {
		switch op := rng.IntN(8); {
		case op < 4:
			if next++; !o.Open() {
				o.Sent()
				out++
				break
			}
			since[next] = answers
			model = append(model, next)
			o.Push(next)
		case op < 6 && len(model) > 0:
			o.Take(leave(0))
		case op < 7 && len(model) > 0:
			o.Remove(leave(rng.IntN(len(model))))
		case out > 0:
			if out--; out == 0 {
				answers++
			}
			if !o.Answered() {
				break
			}
			for e, ok := o.Due(); ok; e, ok = o.Due() {
				if len(model) == 0 || e != model[0] {
					t.Fatalf("due is %d of %v", e, model)
				}
				o.Remove(leave(0))
				if rng.IntN(2) == 0 {
					o.Sent()
					out++
				}
			}
		case rng.IntN(10) == 0:
			for more := o.LetAll(); more; {
				if _, more = o.Due(); more {
					o.Remove(leave(0))
				}
			}
		}
		if len(model) > 0 && out == 0 {
			t.Fatalf("%v are on offer, and wait for nothing", model)
		}
		if o.Len() != len(model) || len(model) > 0 && o.Oldest() != model[0] {
			t.Fatalf("%d on offer, the model has %v", o.Len(), model)
		}
	}
}
