package turns

import (
	"cmp"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/pawl-lock/pawl/bench/internal/latency"
)

// Summary is what the turns of a window say.
type Summary struct {
	Turns, Pairs int64
	// Waits are from Asked to Granted.
	Waits *hdrhistogram.Histogram
	// HandOvers are from the Released of a turn to the Granted of the next, of another process.
	HandOvers *hdrhistogram.Histogram
	// Repeats are turns that followed one of the same process.
	Repeats int64
	// PairsOf has the pairs of each process.
	PairsOf []int64
	// Overtaken is the largest number of turns of other processes that began during one wait and
	// were asked for later than it.
	Overtaken int
	// Overlaps are turns that were granted before the turn before them was released: two
	// processes had the lock at once.
	Overlaps int64
}

// Summarize looks at all turns of a number of processes. It sorts them.
func Summarize(all []Turn, processes int, w Window) Summary {
	slices.SortFunc(all, func(a, b Turn) int { return cmp.Compare(a.Granted, b.Granted) })
	s := Summary{Waits: latency.NewHistogram(), HandOvers: latency.NewHistogram(), PairsOf: make([]int64, processes)}
	for i, t := range all {
		if !w.has(t) {
			continue
		}
		s.Turns++
		s.Pairs += t.Pairs
		s.PairsOf[t.Process] += t.Pairs
		latency.Record(s.Waits, time.Duration(t.Granted-t.Asked))
		s.Overtaken = max(s.Overtaken, overtaken(all[:i], t))
		if i > 0 {
			s.follows(all[i-1], t)
		}
	}
	return s
}

// follows notes how t began after the turn before it.
func (s *Summary) follows(before, t Turn) {
	if t.Granted < before.Released {
		s.Overlaps++
	}
	if t.Process == before.Process {
		s.Repeats++
	} else {
		latency.Record(s.HandOvers, time.Duration(t.Granted-before.Released))
	}
}

// overtaken counts those of the turns before t that overtook it.
func overtaken(before []Turn, t Turn) (n int) {
	for i := len(before) - 1; i >= 0 && before[i].Granted > t.Asked; i-- {
		if before[i].Process != t.Process && before[i].Asked > t.Asked {
			n++
		}
	}
	return n
}

// Shares are the smallest, the median and the largest number of pairs of a process, each
// relative to an even share.
func (s Summary) Shares() (least, median, most float64) {
	sorted := slices.Sorted(slices.Values(s.PairsOf))
	n := len(sorted)
	if s.Pairs == 0 || n == 0 {
		return 0, 0, 0
	}
	even := float64(s.Pairs) / float64(n)
	return float64(sorted[0]) / even, float64(sorted[(n-1)/2]+sorted[n/2]) / 2 / even, float64(sorted[n-1]) / even
}

// WithoutTurn is how many processes had no turn.
func (s Summary) WithoutTurn() (n int) {
	for _, pairs := range s.PairsOf {
		if pairs == 0 {
			n++
		}
	}
	return n
}
