package inspect

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	// lookAgainAfter is how long a cycle must last.
	lookAgainAfter = 250 * time.Millisecond
	// maxGuessed bounds the cycles that are only possible.
	maxGuessed = 10
)

// Deadlocks finds cycles of waits that are there at two looks, and whose owners the server confirms. ask asks all
// engines. Those cycles come first in which all callers are known to hold what they do. The others are
// possible deadlocks: each process holds what another waits for, and perhaps not the same callers do.
func (s *Scan) Deadlocks(ctx context.Context, ask func() ([]Wait, error)) (cycles [][]Wait, err error) {
	first, unasked := ask()
	found, err := s.candidates(ctx, first)
	if err != nil || len(found) == 0 {
		return nil, cmp.Or(err, unasked)
	}
	over, stop := s.After(lookAgainAfter)
	defer stop()
	if s.Wait(over, ctx.Done(), nil) != 0 {
		return nil, context.Cause(ctx)
	}
	later, _ := ask()
	var all []Wait
	for _, cycle := range found {
		all = append(all, cycle...)
	}
	on, err := s.held(ctx, all)
	for _, cycle := range found {
		if confirmed(cycle, later, on) {
			cycles = append(cycles, cycle)
		}
	}
	return cycles, err
}

// candidates are the cycles of one look.
func (s *Scan) candidates(ctx context.Context, waits []Wait) (found [][]Wait, err error) {
	// Waits come as maps are walked.
	slices.SortFunc(waits, func(a, b Wait) int {
		return cmp.Or(cmp.Compare(a.From.Engine, b.From.Engine), cmp.Compare(a.Name, b.Name), cmp.Compare(b.Millis, a.Millis),
			slices.CompareFunc(a.Under, b.Under, func(a, b Carried) int { return cmp.Compare(a.Owner, b.Owner) }))
	})
	known := slices.DeleteFunc(slices.Clone(waits), func(w Wait) bool { return len(w.Under) == 0 })
	found = pick(known, Cycles(known))
	if len(known) == len(waits) {
		return found, nil
	}
	on, err := s.held(ctx, waits)
	if err != nil {
		return found, err
	}
	all := guess(waits, on)
	possible := slices.DeleteFunc(pick(all, Cycles(all)), func(cycle []Wait) bool {
		return !slices.ContainsFunc(cycle, func(w Wait) bool { return w.Guessed })
	})
	return append(found, possible[:min(len(possible), maxGuessed)]...), nil
}

func pick(waits []Wait, cycles [][]int) (all [][]Wait) {
	for _, cycle := range cycles {
		var list []Wait
		for _, i := range cycle {
			list = append(list, waits[i])
		}
		all = append(all, list)
	}
	return all
}

// held asks the server who holds what is waited for.
func (s *Scan) held(ctx context.Context, waits []Wait) (on map[string]Found, err error) {
	names := make(map[string]bool)
	for i := range waits {
		names[waits[i].Name] = true
	}
	on = make(map[string]Found)
	for page := range slices.Chunk(slices.Sorted(maps.Keys(names)), scanCount) {
		if _, err := s.look(ctx, page, func(f Found) bool {
			on[f.Name] = f
			return true
		}); err != nil {
			return on, err
		}
	}
	return on, nil
}

// guess completes the waits whose contexts carry nothing with what their engines hold. A wait for a lock that its own engine
// has says nothing: it is behind another caller there.
func guess(waits []Wait, on map[string]Found) (all []Wait) {
	of := make(map[string][]Carried)
	for _, name := range slices.Sorted(maps.Keys(on)) {
		f := on[name]
		for _, o := range f.Owners {
			engine, number, _ := strings.Cut(o.ID, ":")
			if strings.HasPrefix(number, "-") {
				continue // nobody: MinHold keeps the lock taken
			}
			of[engine] = append(of[engine], Carried{Name: []byte(name), Owner: o.ID, Kind: f.Mode})
		}
	}
	for _, w := range waits {
		if len(w.Under) == 0 {
			w.Under, w.Guessed = of[w.From.Engine], true
			if w.holds(w.Name) != "" {
				continue
			}
		}
		all = append(all, w)
	}
	return all
}

// confirmed reports whether a cycle is there still, and the server knows its owners.
func confirmed(cycle, later []Wait, on map[string]Found) bool {
	for i := range cycle {
		w, next := &cycle[i], &cycle[(i+1)%len(cycle)]
		if !slices.ContainsFunc(later, func(l Wait) bool { return w.same(&l, lookAgainAfter) }) {
			return false
		}
		owner := next.holds(w.Name)
		if !slices.ContainsFunc(on[w.Name].Owners, func(o Owner) bool { return o.ID == owner }) {
			return false
		}
	}
	return true
}
