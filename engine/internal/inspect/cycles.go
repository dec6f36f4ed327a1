package inspect

import (
	"slices"
	"time"
)

// Wait is a wait. What its caller holds is in Under.
type Wait struct {
	From *Answer
	Name string // the lock that it waits for
	Use
	// Guessed: nobody knows what the caller holds. Under is what its engine holds.
	Guessed bool
}

// Waits are those of an answer.
func (a *Answer) Waits() (all []Wait) {
	for _, n := range a.Names {
		for _, u := range n.Uses {
			if !u.Held {
				all = append(all, Wait{From: a, Name: string(n.Name), Use: u})
			}
		}
	}
	return all
}

// Cycles finds deadlocks: lists of waits, by index, each of which is for a lock that the next one holds, and
// the last for one that the first holds. Of waits that are all stuck together it has one of the shortest lists.
//
// A wait leads to a target, a name with what it is wanted for, and a target to the waits whose callers hold it: a
// reader is kept out by writers only. So the graph has no more edges than there are waits and holds.
func Cycles(waits []Wait) (all [][]int) {
	g := graph{wanted: make([]target, len(waits)), holders: make(map[target][]int)}
	for i := range waits {
		w := &waits[i]
		g.wanted[i] = target{w.Name, w.Kind == "read"}
		for _, c := range w.Under {
			g.add(target{string(c.Name), false}, i)
			if c.Kind != "read" {
				g.add(target{string(c.Name), true}, i)
			}
		}
	}
	for _, stuck := range g.components(len(waits)) {
		if cycle := g.shortest(stuck); cycle != nil {
			all = append(all, cycle)
		}
	}
	return all
}

// target is what a wait is for. Shared: only to read.
type target struct {
	name   string
	shared bool
}

type graph struct {
	wanted  []target
	holders map[target][]int // in order
}

func (g *graph) add(t target, wait int) {
	if of := g.holders[t]; len(of) == 0 || of[len(of)-1] != wait {
		g.holders[t] = append(of, wait)
	}
}

// next are the waits whose callers hold what i waits for, but for i itself.
func (g *graph) next(i int, visit func(j int)) {
	for _, j := range g.holders[g.wanted[i]] {
		if j != i {
			visit(j)
		}
	}
}

// components are the waits that lead to each other, two or more (Tarjan's algorithm, without recursion: a
// chain may be long).
func (g *graph) components(n int) (all [][]int) {
	const unseen = -1
	index, low := make([]int, n), make([]int, n)
	onStack := make([]bool, n)
	for i := range index {
		index[i] = unseen
	}
	var stack []int
	type frame struct{ wait, edge int }
	count := 0
	for start := range n {
		if index[start] != unseen {
			continue
		}
		calls := []frame{{wait: start}}
		for len(calls) > 0 {
			top := &calls[len(calls)-1]
			i := top.wait
			if top.edge == 0 && index[i] == unseen {
				index[i], low[i], onStack[i] = count, count, true
				count++
				stack = append(stack, i)
			}
			if edges := g.holders[g.wanted[i]]; top.edge < len(edges) {
				j := edges[top.edge]
				top.edge++
				switch {
				case j == i:
				case index[j] == unseen:
					calls = append(calls, frame{wait: j})
				case onStack[j]:
					low[i] = min(low[i], index[j])
				}
				continue
			}
			calls = calls[:len(calls)-1]
			if len(calls) > 0 {
				up := calls[len(calls)-1].wait
				low[up] = min(low[up], low[i])
			}
			if low[i] == index[i] {
				at := slices.Index(stack, i)
				if len(stack)-at > 1 {
					all = append(all, slices.Clone(stack[at:]))
				}
				for _, j := range stack[at:] {
					onStack[j] = false
				}
				stack = stack[:at]
			}
		}
	}
	return all
}

// shortest is one of the shortest cycles through the first of waits that lead to each other.
func (g *graph) shortest(stuck []int) []int {
	start := slices.Min(stuck)
	among := make(map[int]bool, len(stuck))
	for _, i := range stuck {
		among[i] = true
	}
	from := map[int]int{start: start}
	for queue := []int{start}; len(queue) > 0; queue = queue[1:] {
		var cycle []int
		i := queue[0]
		g.next(i, func(j int) {
			if j == start && cycle == nil {
				for at := i; ; at = from[at] {
					cycle = append(cycle, at)
					if at == start {
						break
					}
				}
				slices.Reverse(cycle)
				return
			}
			if _, seen := from[j]; !seen && among[j] {
				from[j] = i
				queue = append(queue, j)
			}
		})
		if cycle != nil {
			return cycle
		}
	}
	return nil
}

// rounding is by how much two times of an engine may differ from those that passed.
const rounding = 10 * time.Millisecond

// same reports whether a look that came at least so much later has found the same wait: of the same caller, who holds
// the same, and it has not begun anew.
func (w *Wait) same(later *Wait, after time.Duration) bool {
	return w.From.Engine == later.From.Engine && w.Name == later.Name && w.Kind == later.Kind && later.For()-w.For() >= after-rounding &&
		(w.Guessed || slices.EqualFunc(w.Under, later.Under, func(a, b Carried) bool { return a.Owner == b.Owner }))
}

// holds is the owner under which the caller of a wait holds a lock, "" if it does not.
func (w *Wait) holds(name string) (owner string) {
	for _, c := range w.Under {
		if string(c.Name) == name {
			return c.Owner
		}
	}
	return ""
}
