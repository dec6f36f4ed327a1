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
// reader is kept out by writers only. So the graph has no more edges than there are waits and holds, and
// claims without end take no longer than it takes to read them.
func Cycles(waits []Wait) (all [][]int) {
	g := graph{wanted: make([]int, len(waits))}
	index := make(map[target]int)
	node := func(t target) int {
		i, known := index[t]
		if !known {
			i = len(waits) + len(g.holders)
			index[t] = i
			g.holders = append(g.holders, nil)
		}
		return i
	}
	for i := range waits {
		w := &waits[i]
		g.wanted[i] = node(target{w.Name, w.Kind == "read"})
		for _, c := range w.Under {
			g.add(node(target{string(c.Name), false}), i)
			if c.Kind != "read" {
				g.add(node(target{string(c.Name), true}), i)
			}
		}
	}
	for _, stuck := range g.components() {
		all = append(all, g.shortest(stuck))
	}
	return all
}

// target is what a wait is for. Shared: only to read.
type target struct {
	name   string
	shared bool
}

// graph has a node for each wait, by its index, and behind them one for each target.
type graph struct {
	wanted  []int   // the target of each wait
	holders [][]int // of each target the waits whose callers hold it, in order
}

// next are the nodes that one leads to.
func (g *graph) next(node int) []int {
	if node < len(g.wanted) {
		return g.wanted[node : node+1]
	}
	return g.holders[node-len(g.wanted)]
}

func (g *graph) add(target, wait int) {
	of := &g.holders[target-len(g.wanted)]
	if n := len(*of); n == 0 || (*of)[n-1] != wait {
		*of = append(*of, wait)
	}
}

// components are the waits that lead to each other, two or more (Tarjan's algorithm, without recursion: a
// chain may be long).
func (g *graph) components() (all [][]int) {
	const unseen = -1
	n := len(g.wanted) + len(g.holders)
	index, low := make([]int, n), make([]int, n)
	onStack := make([]bool, n)
	for i := range index {
		index[i] = unseen
	}
	var stack []int
	type frame struct{ node, edge int }
	count := 0
	for start := range g.wanted {
		if index[start] != unseen {
			continue
		}
		calls := []frame{{node: start}}
		for len(calls) > 0 {
			top := &calls[len(calls)-1]
			i := top.node
			if top.edge == 0 && index[i] == unseen {
				index[i], low[i], onStack[i] = count, count, true
				count++
				stack = append(stack, i)
			}
			if edges := g.next(i); top.edge < len(edges) {
				j := edges[top.edge]
				top.edge++
				switch {
				case index[j] == unseen:
					calls = append(calls, frame{node: j})
				case onStack[j]:
					low[i] = min(low[i], index[j])
				}
				continue
			}
			calls = calls[:len(calls)-1]
			if len(calls) > 0 {
				up := calls[len(calls)-1].node
				low[up] = min(low[up], low[i])
			}
			if low[i] == index[i] {
				var waits []int
				for last := -1; last != i; {
					last = stack[len(stack)-1]
					stack = stack[:len(stack)-1]
					onStack[last] = false
					if last < len(g.wanted) {
						waits = append(waits, last)
					}
				}
				if len(waits) > 1 { // one alone waits for what it holds itself
					all = append(all, waits)
				}
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
	from := map[int]int{start: start} // of a wait that was reached: the wait before it
	looked := make(map[int]bool)      // targets
	for queue := []int{start}; len(queue) > 0; queue = queue[1:] {
		i := queue[0]
		if _, closes := slices.BinarySearch(g.next(g.wanted[i]), start); closes && i != start {
			var cycle []int
			for at := i; at != start; at = from[at] {
				cycle = append(cycle, at)
			}
			cycle = append(cycle, start)
			slices.Reverse(cycle)
			return cycle
		}
		if looked[g.wanted[i]] {
			continue
		}
		looked[g.wanted[i]] = true
		for _, j := range g.next(g.wanted[i]) {
			if _, seen := from[j]; !seen && among[j] {
				from[j] = i
				queue = append(queue, j)
			}
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
		slices.EqualFunc(w.Under, later.Under, func(a, b Carried) bool { return a.Owner == b.Owner })
}

// holds reports whether the caller of a wait holds a lock.
func (w *Wait) holds(name string) bool {
	return slices.ContainsFunc(w.Under, func(c Carried) bool { return string(c.Name) == name })
}
