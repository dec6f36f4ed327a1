package inspect

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/cputime"
)

// wait is one for a name, of a caller who holds others. "r:a" is a reader of a.
func wait(wants string, holds ...string) Wait {
	split := func(text string) (name, kind string) {
		if name, reads := strings.CutPrefix(text, "r:"); reads {
			return name, "read"
		}
		return text, "write"
	}
	var w Wait
	w.Name, w.Kind = split(wants)
	for _, h := range holds {
		name, kind := split(h)
		w.Under = append(w.Under, Carried{Name: []byte(name), Kind: kind})
	}
	return w
}

func TestCycles_Samples_AreFound(t *testing.T) {
	t.Parallel()
	ring := func(n int) (waits []Wait, cycle []int) {
		for i := range n {
			waits = append(waits, Wait{Name: fmt.Sprint((i + 1) % n), Use: Use{Kind: "mutex", Under: []Carried{{Name: []byte(fmt.Sprint(i)), Kind: "mutex"}}}})
			cycle = append(cycle, i)
		}
		return waits, cycle
	}
	for _, n := range []int{2, 3, 10, 5000} {
		waits, cycle := ring(n)
		if got := Cycles(waits); len(got) != 1 || !slices.Equal(got[0], cycle) {
			t.Errorf("a ring of %d: %d found", n, len(got))
		}
		if got := Cycles(waits[1:]); got != nil {
			t.Errorf("a ring of %d without one: %v", n, got)
		}
	}
	for _, c := range []struct {
		what  string
		waits []Wait
		want  [][]int
	}{
		{"nothing", nil, nil},
		{"a chain", []Wait{wait("b", "a"), wait("c", "b"), wait("d", "c")}, nil},
		{"itself", []Wait{wait("a", "a")}, nil},
		{"two", []Wait{wait("b", "a"), wait("a", "b")}, [][]int{{0, 1}}},
		{"two, and one who waits for them", []Wait{wait("a", "c"), wait("b", "a"), wait("a", "b")}, [][]int{{1, 2}}},
		{"the second of two locks", []Wait{wait("b", "x", "a"), wait("a", "b")}, [][]int{{0, 1}}},
		{"two deadlocks", []Wait{wait("b", "a"), wait("d", "c"), wait("a", "b"), wait("c", "d")}, [][]int{{0, 2}, {1, 3}}},
		{"readers do not keep readers out", []Wait{wait("r:b", "a"), wait("a", "r:b")}, nil},
		{"a writer is kept out by a reader", []Wait{wait("b", "a"), wait("a", "r:b")}, [][]int{{0, 1}}},
		{"a reader is kept out by a writer", []Wait{wait("r:b", "a"), wait("a", "b")}, [][]int{{0, 1}}},
		{"the shortest", []Wait{wait("b", "a"), wait("c", "b"), wait("a", "c", "b")}, [][]int{{0, 2}}},
	} {
		if got := Cycles(c.waits); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}

// An asker reads what anybody may claim: waits without end, each of which leads to each other.
func TestCycles_ManyClaims_TakeTimeInProportion(t *testing.T) {
	t.Parallel()
	const n = 30_000
	for what, of := range map[string]func(i int) Wait{
		"all want what all hold": func(int) Wait { return wait("x", "x") },
		"a chain":                func(i int) Wait { return wait(fmt.Sprint(i+1), fmt.Sprint(i)) },
		"pairs":                  func(i int) Wait { return wait(fmt.Sprint(i^1), fmt.Sprint(i)) },
	} {
		var waits []Wait
		for i := range n {
			waits = append(waits, of(i))
		}
		began := cputime.Now()
		cycles := Cycles(waits)
		if took := began.Elapsed(); took > 10*time.Second { // it takes 0.1 s, and took a minute
			t.Errorf("%s: %d cycles after %v", what, len(cycles), took)
		}
	}
}

// stuck finds by elimination the waits that are in a cycle or lead to one: whoever waits for nobody that is stuck gets
// what it waits for.
func stuck(waits []Wait) bool {
	left := make([]bool, len(waits))
	for i := range left {
		left[i] = true
	}
	for again := true; again; {
		again = false
		for i := range waits {
			if left[i] && !blockedBy(waits, left, i) {
				left[i], again = false, true
			}
		}
	}
	return slices.Contains(left, true)
}

func blockedBy(waits []Wait, left []bool, i int) bool {
	for j := range waits {
		if left[j] && j != i && blocks(&waits[i], &waits[j]) {
			return true
		}
	}
	return false
}

// blocks reports whether the caller of the second has what the first waits for.
func blocks(a, b *Wait) bool {
	for _, c := range b.Under {
		if string(c.Name) == a.Name && (a.Kind != "read" || c.Kind != "read") {
			return true
		}
	}
	return false
}

func TestCycles_Random_AreThereIfAndOnlyIfSomebodyIsStuck(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	found := 0
	for range 20_000 {
		var waits []Wait
		names := 2 + random.IntN(8)
		name := func() string {
			n := fmt.Sprint(random.IntN(names))
			if random.IntN(3) == 0 {
				return "r:" + n
			}
			return n
		}
		for range random.IntN(8) {
			var holds []string
			for range 1 + random.IntN(2) {
				holds = append(holds, name())
			}
			waits = append(waits, wait(name(), holds...))
		}
		cycles := Cycles(waits)
		if stuck(waits) != (len(cycles) > 0) {
			t.Fatalf("%+v: %v", waits, cycles)
		}
		for _, cycle := range cycles {
			found++
			for at, i := range cycle {
				if j := cycle[(at+1)%len(cycle)]; i == j || !blocks(&waits[i], &waits[j]) {
					t.Fatalf("%+v: %v: %d does not wait for %d", waits, cycle, i, j)
				}
			}
		}
	}
	if found < 1000 {
		t.Errorf("only %d cycles were found: the programs are too tame", found)
	}
}
