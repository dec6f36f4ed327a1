package sim

import (
	"container/heap"
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

// Sim is one world: its time, what will happen in it, and who lives there.
type Sim struct {
	seed      uint64
	random    *rand.Rand
	now       clock.Instant
	events    events
	count     uint64        // of events so far
	lease     time.Duration // of the watchdog
	calm      bool          // no more faults, and nobody asks for a lock any more
	lull      bool          // no faults for a while
	contended []string      // what most ask for, without options: that is handed over
	favours   []string      // what most ask for, in every way, and whose slots move most
	acked     bool          // and they want replicas to have it
	voting    string        // what has the kind of the locks that are on all servers
	throng    clock.Instant // until then many read one name, for a moment each: those hand grants over
	quiet     clock.Instant // since when it is calm, or a lull

	servers   []*server
	server    *server // the first, which has all names but that of RedLocks
	processes []*process
	holds     []*held // that a program has; see check.go
	kept      []*held // all: the garbage collector must not tell the story

	cluster *cluster // nil: it is none
	counts  *counts  // nil: nobody uses any

	robbed      map[string]clock.Instant // owners that others have removed, and when
	robbedVotes []string                 // owners of RedLocks that others have removed
	latePlaces  map[string]bool          // engines and names: places in a queue that may be nobody's
	front       int                      // engines that race for a name; 0: as many as usual
	excused     map[string]clock.Instant // names that were freed silently: until their expiry, or the end of the longest sleep
	late        map[string]bool          // owners that were granted after the connection had ended
	denied      map[string]clock.Instant // owners whose release was denied, and when
	free        map[string]freed         // names, since when; see check.go
	announced   map[string]clock.Instant // names: the latest message
	heard       map[string]clock.Instant // the same, of messages that somebody hears
	stray       map[string]clock.Instant // since when nobody has an owner that the server has
	failovers   int
	shortened   map[string]shortened // owners
	ghosts      map[string]bool      // owners that were released, and came back by a failover
	tokens      map[string]int64     // the latest that a program was given, of a name
	steps       uint64

	backoff backoff // of a lock that polls
	turns   turns   // those of a fair lock
	reading reading // of a read-write lock

	semaphore    bool // there is one
	permitUsers  []*permitUser
	strayPermits map[string]clock.Instant // since when nobody has a permit that the server has
	unused       clock.Instant            // since when there are permits for those who wait; 0: not now
	offered      clock.Instant            // since when that was told to somebody; 0: it was not
	rivalIDs     int

	// dictated: nothing is left to chance. Each way takes a millisecond, timers are exact,
	// and goroutines start at once. See the stories in testdata.
	dictated bool
	secrets  uint64

	observers []*observer

	inspected            bool       // engines answer, and programs look for deadlocks
	lookouts             []*lookout // of those who look
	deadlocks, suspected uint64     // that were found

	running      *thread
	parked, idle []*thread
	threads      []*thread // all
	watched      []*watched

	over  bool            // nothing happens any more; a cleanup may still ask for a goroutine
	ctx   context.Context // that contexts of holds are made from; ends with the world
	leave context.CancelFunc

	story   *strings.Builder // nil: nobody reads it
	print   uint64           // of the story, in any case
	failure error
}

// event is something that will happen.
type event struct {
	at    clock.Instant
	order uint64
	whose *process // nil: the world's
	do    func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].order < e[j].order
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	old[len(old)-1] = event{}
	*e = old[:len(old)-1]
	return last
}

// begin is when every world begins.
const begin = clock.Instant(time.Hour)

// at has something happen at an instant. What belongs to a process waits while that is
// paused.
func (s *Sim) at(at clock.Instant, whose *process, do func()) {
	s.count++
	heap.Push(&s.events, event{max(at, s.now), s.count, whose, do})
}

func (s *Sim) after(d time.Duration, whose *process, do func()) { s.at(s.now.Add(d), whose, do) }

// step has the next thing happen, and checks the promises. It reports whether there was
// one, and nothing has failed.
func (s *Sim) step() bool {
	if len(s.events) == 0 || s.failure != nil {
		return false
	}
	e := heap.Pop(&s.events).(event)
	s.now = e.at
	if e.whose != nil && e.whose.dead {
		return true
	}
	s.steps++
	if p := e.whose; p != nil && p.wakes > s.now {
		p.sleep(e.do)
		return true
	}
	e.do()
	s.note()
	s.wakeThreads()
	s.check()
	return s.failure == nil
}

// fail ends the run.
func (s *Sim) fail(format string, args ...any) {
	if s.failure == nil {
		s.failure = fmt.Errorf("seed %d, at %v: "+format, append([]any{s.seed, s.now.Sub(begin)}, args...)...)
		s.tell("FAILURE: %v", s.failure)
	}
}

// tell adds a line to the story.
func (s *Sim) tell(format string, args ...any) {
	line := fmt.Sprintf("%12v ", s.now.Sub(begin)) + fmt.Sprintf(format, args...) + "\n"
	h := fnv.New64a()
	fmt.Fprintf(h, "%d", s.print)
	h.Write([]byte(line))
	s.print = h.Sum64()
	if s.story != nil {
		s.story.WriteString(line)
	}
}

// chance is true once in n times, on average.
func (s *Sim) chance(n int) bool { return !s.dictated && s.random.IntN(n) == 0 }

// draw returns a number in [0, n), or the last one, which a story dictates.
func (s *Sim) draw(n int) int {
	if s.dictated {
		return n - 1
	}
	return s.random.IntN(n)
}

// mild reports whether nothing goes wrong at the moment.
func (s *Sim) mild() bool { return s.calm || s.lull }

// recovers is how long what has gone wrong may have consequences: pauses and cuts, and
// what lies in buffers.
const recovers = 30 * time.Second

// healthy reports whether nothing has gone wrong for so long that nothing of it is left.
func (s *Sim) healthy() bool { return s.mild() && s.now.Sub(s.quiet) > recovers }

func (s *Sim) time() clock.Instant { return s.now }

// between draws a duration, short ones more often; in a story it is the shortest.
func (s *Sim) between(least, most time.Duration) time.Duration {
	if s.dictated {
		return least
	}
	x := s.random.Float64()
	return least + time.Duration(x*x*x*float64(most-least))
}
