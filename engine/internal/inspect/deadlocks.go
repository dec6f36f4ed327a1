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

// Deadlocks finds cycles of waits that are there at two looks. ask asks all engines. Those cycles come first in which all
// callers are known to hold what they do. The others are possible deadlocks: each process holds what another waits for,
// and perhaps not the same callers do.
//
// What a look or the server does not confirm is left out before the search. Else a cycle of which a claim is a part could
// take the place of a real one. All of a cycle was true when the second question was asked: each wait began before and was
// there after that, and so was each hold.
func (s *Scan) Deadlocks(ctx context.Context, ask func() ([]Wait, error)) ([][]Wait, error) {
	first, unasked := ask()
	found, before, err := s.cycles(ctx, first, nil)
	if err != nil || len(found) == 0 {
		return nil, cmp.Or(err, unasked)
	}
	over, stop := s.After(lookAgainAfter)
	defer stop()
	if s.Wait(over, ctx.Done(), nil) != 0 {
		return nil, context.Cause(ctx)
	}
	later, _ := ask()
	found, _, err = s.cycles(ctx, lasting(first, later), before)
	return found, err
}

// cycles are those of waits whose owners the server knows, and knew before, if that is not nil. If it cannot be asked for
// some, they are those of the others.
func (s *Scan) cycles(ctx context.Context, waits []Wait, before map[string]Found) (found [][]Wait, on map[string]Found, err error) {
	// Waits come as maps are walked.
	slices.SortFunc(waits, func(a, b Wait) int {
		return cmp.Or(cmp.Compare(a.From.Engine, b.From.Engine), cmp.Compare(a.Name, b.Name), cmp.Compare(b.Millis, a.Millis),
			slices.CompareFunc(a.Under, b.Under, func(a, b Carried) int { return cmp.Compare(a.Owner, b.Owner) }))
	})
	on, err = s.held(ctx, waits)
	for name, f := range on {
		f.Owners = slices.DeleteFunc(f.Owners, func(o Owner) bool {
			return before != nil && !slices.ContainsFunc(before[name].Owners, func(was Owner) bool { return was.ID == o.ID })
		})
		on[name] = f
	}
	known, all := confirmed(waits, on), guess(waits, on)
	found = pick(known, Cycles(known))
	possible := slices.DeleteFunc(pick(all, Cycles(all)), func(cycle []Wait) bool {
		return !slices.ContainsFunc(cycle, func(w Wait) bool { return w.Guessed })
	})
	return append(found, possible[:min(len(possible), maxGuessed)]...), on, err
}

// lasting are the waits of a look that a later one has found, too.
func lasting(first, later []Wait) (all []Wait) {
	type place struct{ engine, name string }
	of := make(map[place][]*Wait)
	for i := range later {
		at := place{later[i].From.Engine, later[i].Name}
		of[at] = append(of[at], &later[i])
	}
	for _, w := range first {
		if slices.ContainsFunc(of[place{w.From.Engine, w.Name}], func(l *Wait) bool { return w.same(l, lookAgainAfter) }) {
			all = append(all, w)
		}
	}
	return all
}

// confirmed are the waits whose callers hold something, each with what the server says they hold. A wait for what its caller
// holds already is a re-entry: nobody else keeps it out.
func confirmed(waits []Wait, on map[string]Found) (all []Wait) {
	for _, w := range waits {
		w.Under = slices.DeleteFunc(slices.Clone(w.Under), func(c Carried) bool {
			return !slices.ContainsFunc(on[string(c.Name)].Owners, func(o Owner) bool { return o.ID == c.Owner })
		})
		if len(w.Under) > 0 && !w.holds(w.Name) {
			all = append(all, w)
		}
	}
	return all
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
			all = append(all, w)
		}
	}
	return confirmed(append(all, waits...), on)
}
