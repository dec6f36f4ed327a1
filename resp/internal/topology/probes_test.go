package topology

import (
	"testing"
	"testing/synctest"
	"time"
)

// A server that says that it is full is not silent: neither then, nor while nobody asks.
func TestProbes_Silence_BeginsWithTheFirstQuestionAfterAnAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		defer w.close()
		w.set("p:1", pipeServer{fails: full})
		s := newProbes(t.Context(), w.config(Sentinel), SearchTimeout)
		defer s.close()
		expect := func(waiting, silent time.Duration) {
			t.Helper()
			if o, q := s.outstanding("p:1"); o != waiting || q != silent {
				t.Errorf("an answer is outstanding for %v, it has been silent for %v, want %v and %v", o, q, waiting, silent)
			}
		}
		for range 2 {
			if _, err := s.ask(t.Context(), w, "p:1", "ROLE"); !postponed(err) {
				t.Fatal(err)
			}
			time.Sleep(dialTimeout)
		}
		expect(2*dialTimeout, 0)
		w.set("p:1", pipeServer{answer: saysPrimary, slow: 2 * SearchTimeout})
		if _, err := s.ask(t.Context(), w, "p:1", "ROLE"); err == nil {
			t.Fatal("it was not slow")
		}
		expect(2*dialTimeout+SearchTimeout, SearchTimeout)
		time.Sleep(SearchTimeout)
		if _, err := s.ask(t.Context(), w, "p:1", "ROLE"); err != nil {
			t.Fatal(err)
		}
		expect(0, 0)
	})
}
