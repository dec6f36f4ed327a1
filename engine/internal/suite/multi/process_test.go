package multi

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// rounds is how many rounds a test of two processes has; more by PAWL_MULTI_ROUNDS.
func rounds(n int) int {
	if more, err := strconv.Atoi(os.Getenv("PAWL_MULTI_ROUNDS")); err == nil {
		return more
	}
	return n
}

// work takes as long as d, or until the hold is lost.
func work(h *engine.Hold, d time.Duration) {
	for began := time.Now(); time.Since(began) < d && h.Err() == nil; {
		runtime.Gosched()
	}
}

// Two processes that want the same two locks in opposite orders both get them, each time.
func TestProcessesWithOppositeOrdersDoNotDeadlock(t *testing.T) {
	const each = 300
	if args := testkit.PeerArgs(); len(args) == 2 {
		e := testkit.Open(t, args[1])
		l := engine.Multi(e.Mutex("a"), e.Mutex("b"))
		if args[0] == "1" {
			l = engine.Multi(e.Mutex("b"), e.Mutex("a"))
		}
		testkit.Begins()
		for range each {
			h, err := l.Lock(testkit.Ctx(t))
			if err == nil {
				work(h, 300*time.Microsecond)
				err = h.Unlock(testkit.Ctx(t))
			}
			if err != nil {
				t.Fatal(err)
			}
			fmt.Println("done")
		}
		fmt.Println("commands", e.Stats().Commands)
		return
	}
	t.Parallel()
	s := testkit.Server(t)
	var done [2]int
	commands := 0
	testkit.Peers(t, func(process int, text string) {
		n := 0
		if text == "done" {
			done[process]++
		} else if _, err := fmt.Sscanf(text, "commands %d", &n); err == nil {
			commands += n
		}
	}, s.URL())
	t.Logf("%d commands; without contention %d", commands, 2*each*4)
	if commands < 2*each*4+each {
		t.Error("they did not get in each other's way")
	}
	if done != [2]int{each, each} {
		t.Errorf("%v rounds", done)
	}
	testkit.Clean(t, s)
}

// manySection is what one round of a process had, by the clock of the machine.
type manySection struct {
	process  string
	from, to int64
}

// Two processes take overlapping sets of 500 names in random order; some give up at a random
// moment. Nobody waits for ever, no name is had by two at a time, nothing is left over, and
// it costs what it should. PAWL_MULTI_ROUNDS=10000 is the long run.
func TestProcessesWithOverlappingSetsExcludeEachOther(t *testing.T) {
	if args := testkit.PeerArgs(); len(args) == 3 {
		n, _ := strconv.Atoi(args[2])
		takeSets(t, args[0], args[1], n)
		return
	}
	t.Parallel()
	for name, at := range map[string]*testkit.Site{
		"standalone": testkit.Single(testkit.Server(t)), "cluster": testkit.Clustered(redistest.StartCluster(t, false)),
	} {
		t.Run(name, func(t *testing.T) {
			had := make(map[string][]manySection) // by name
			taken, given := 0, 0
			testkit.Peers(t, func(process int, text string) {
				words := strings.Fields(text)
				switch {
				case len(words) > 4 && words[0] == "had":
					taken++
					from, _ := strconv.ParseInt(words[2], 10, 64)
					to, _ := strconv.ParseInt(words[3], 10, 64)
					for _, name := range words[4:] {
						had[name] = append(had[name], manySection{fmt.Sprint(process, "/", words[1]), from, to})
					}
				case text == "gave up":
					given++
				}
			}, at.URL, rounds(60))
			for name, list := range had {
				slices.SortFunc(list, func(a, b manySection) int { return int(a.from - b.from) })
				for i := 1; i < len(list); i++ {
					if list[i].from < list[i-1].to {
						t.Errorf("%s: %+v and %+v", name, list[i-1], list[i])
					}
				}
			}
			t.Logf("%d sets taken, %d given up", taken, given)
			if taken < rounds(60) {
				t.Errorf("only %d sets were taken", taken)
			}
			at.Clean(t)
		})
	}
}

// takeSets is one of the processes.
func takeSets(t *testing.T, process, url string, n int) {
	const workers, names = 3, 500
	e := testkit.Open(t, url)
	var mu sync.Mutex
	say := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Println(text)
	}
	testkit.Begins()
	var wg sync.WaitGroup
	for worker := range workers {
		seed, _ := strconv.ParseUint(process, 10, 64)
		rng := rand.New(rand.NewPCG(seed, uint64(worker)))
		wg.Go(func() {
			for range n / workers {
				var set []string
				for _, i := range rng.Perm(names)[:1+rng.IntN(60)] {
					set = append(set, fmt.Sprint("n", i))
				}
				ctx, cancel := testkit.Ctx(t), context.CancelFunc(func() {})
				if rng.IntN(4) == 0 {
					ctx, cancel = context.WithTimeout(ctx, time.Duration(rng.Int64N(int64(5*time.Millisecond))))
				}
				h, err := e.LockMany(ctx, set)
				switch {
				case err == nil:
					from := time.Now()
					work(h, time.Duration(rng.Int64N(int64(200*time.Microsecond))))
					to := time.Now()
					if err := h.Unlock(testkit.Ctx(t)); err != nil {
						t.Errorf("Unlock: %v", err)
					}
					say(fmt.Sprintf("had %d %d %d %s", worker, from.UnixNano(), to.UnixNano(), strings.Join(set, " ")))
				case ctx.Err() != nil:
					say("gave up")
				default:
					t.Errorf("process %s: %v", process, err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
}
