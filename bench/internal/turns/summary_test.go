package turns

import (
	"slices"
	"testing"
)

// ms makes a turn of one pair, in milliseconds.
func ms(process int, asked, granted, released int64) Turn {
	return Turn{process, asked * 1e6, granted * 1e6, released * 1e6, 1}
}

func TestSummarize_Turns_AreCountedWithinTheWindow(t *testing.T) {
	t.Parallel()
	s := Summarize([]Turn{
		ms(1, 0, 99, 100), // before the window, and what the first of it follows
		ms(0, 50, 102, 103), ms(1, 101, 106, 107), ms(1, 107, 108, 110),
		{0, 104e6, 115e6, 130e6, 3},
		ms(2, 0, 200, 201), // granted when it had ended
	}, 3, Window{100e6, 200e6})
	if s.Turns != 4 || s.Pairs != 6 || s.Repeats != 1 || s.Overlaps != 0 || s.WithoutTurn() != 1 || !slices.Equal(s.PairsOf, []int64{4, 2, 0}) {
		t.Errorf("%+v", s)
	}
	if n := s.HandOvers.TotalCount(); n != 3 {
		t.Errorf("%d hand-overs", n)
	}
	for _, c := range []struct {
		what      string
		got, want int64
	}{
		{"the shortest hand-over", s.HandOvers.Min(), 2e6}, {"the longest", s.HandOvers.Max(), 5e6},
		{"the shortest wait", s.Waits.Min(), 1e6}, {"the longest", s.Waits.Max(), 52e6},
	} {
		if d := c.got - c.want; d < -c.want/500 || d > c.want/500 {
			t.Errorf("%s took %d ns, want %d", c.what, c.got, c.want)
		}
	}
}

// Processes note their turns apart, so all of them come out of order.
func TestSummarize_Order_DoesNotMatter(t *testing.T) {
	t.Parallel()
	s := Summarize([]Turn{ms(1, 5, 10, 11), ms(0, 0, 1, 2), ms(0, 5, 6, 7)}, 2, Window{0, 100e6})
	if s.Repeats != 1 || s.Overlaps != 0 {
		t.Errorf("%+v", s)
	}
}

func TestSummarize_TwoHoldersAtOnce_AreAnOverlap(t *testing.T) {
	t.Parallel()
	s := Summarize([]Turn{ms(0, 0, 1, 5), ms(1, 0, 4, 6), ms(0, 5, 7, 8)}, 2, Window{0, 100e6})
	if s.Overlaps != 1 {
		t.Errorf("%+v", s)
	}
}

func TestSummarize_Overtaken_CountsLaterRequestsOfOthersInOneWait(t *testing.T) {
	t.Parallel()
	s := Summarize([]Turn{
		ms(1, 1, 10, 11),  // asked before the one that waits
		ms(2, 3, 12, 13),  // overtakes it
		ms(1, 11, 14, 15), // overtakes it
		ms(0, 5, 16, 17),  // another goroutine of its own process
		ms(0, 2, 20, 21),
		ms(1, 21, 30, 31),
	}, 3, Window{0, 100e6})
	if s.Overtaken != 2 {
		t.Errorf("%+v", s)
	}
}

func TestSummary_Shares_AreRelativeToAnEvenOne(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pairs               []int64
		least, median, most float64
	}{
		{[]int64{5, 5}, 1, 1, 1}, {[]int64{30, 0, 10, 20}, 0, 1, 2}, {[]int64{9, 0, 0}, 0, 0, 3}, {[]int64{0, 0}, 0, 0, 0}, {nil, 0, 0, 0},
	} {
		s := Summary{PairsOf: c.pairs}
		for _, n := range c.pairs {
			s.Pairs += n
		}
		if least, median, most := s.Shares(); least != c.least || median != c.median || most != c.most {
			t.Errorf("%v: %v, %v, %v", c.pairs, least, median, most)
		}
	}
}
