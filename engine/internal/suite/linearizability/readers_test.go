package linearizability

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// library is who reads and who writes now. One whose hold has ended does neither.
type library struct {
	mu      sync.Mutex
	readers map[*engine.Hold]struct{}
	writers map[*engine.Hold]struct{}
}

// enter notes a hold, and returns how many others it excludes.
func (l *library) enter(h *engine.Hold, writes bool) (others int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, in := range []map[*engine.Hold]struct{}{l.readers, l.writers} {
		for one := range in {
			if one.Err() != nil {
				delete(in, one)
			}
		}
	}
	if h.Err() != nil {
		return 0
	}
	others = len(l.writers)
	if writes {
		others += len(l.readers)
		l.writers[h] = struct{}{}
	} else {
		l.readers[h] = struct{}{}
	}
	return others
}

func (l *library) leave(h *engine.Hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.readers, h)
	delete(l.writers, h)
}

// Many readers of three processes, those of each with one grant, and a few writers want one
// name, while connections are cut before and after commands, the server stands still and forgets its
// scripts, and one of the engines is closed and replaced. A writer is alone; everybody gets a turn;
// nothing is left.
func TestReaders_ThatShareAGrant_BesideWritersWhileConnectionsAreCut(t *testing.T) {
	t.Parallel()
	for _, closes := range []bool{false, true} {
		t.Run(fmt.Sprintf("closes=%t", closes), func(t *testing.T) {
			t.Parallel()
			runReaders(t, closes)
		})
	}
}

func runReaders(t *testing.T, closes bool) {
	const (
		engines = 3
		readers = 12 // of each
		writers = 2
		longest = 15 * time.Second
	)
	length, seed := lengthAndSeed(t, 5*time.Second)
	s := testkit.Server(t)
	stop := make(chan struct{})
	l := &library{readers: make(map[*engine.Hold]struct{}), writers: make(map[*engine.Hold]struct{})}
	var places []*atomic.Pointer[engine.Engine]
	var handedOver, granted, lost, cuts atomic.Int64
	var worst [2]atomic.Int64
	var work, trouble sync.WaitGroup
	for i := range engines {
		p := faultproxy.New(t, "tcp", s.Addr())
		open := func() *engine.Engine {
			return testkit.Open(t, "redis://"+p.Addr(), func(c *engine.Config) {
				c.Lease, c.CommandTimeout, c.CloseTimeout, c.Lazy = 3*time.Second, time.Second, 2*time.Second, true
			})
		}
		place := new(atomic.Pointer[engine.Engine])
		place.Store(open())
		places = append(places, place)
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		trouble.Go(func() { cut(p, random, stop, &cuts) })
		if closes && i == 0 {
			trouble.Go(func() {
				for testkit.Pause(stop, time.Second) {
					old := place.Swap(open())
					_ = old.Close() // what it could not release ends with its lease
					handedOver.Add(int64(old.Stats().HandedOver))
				}
			})
		}
		for j := range readers + writers {
			random := rand.New(rand.NewPCG(seed, uint64(100*(i+1)+j)))
			writes := j >= readers
			kind := 0
			if writes {
				kind = 1
			}
			work.Go(func() {
				for testkit.Pause(stop, 0) {
					e := place.Load()
					mutex := e.RWMutex("x").Reader()
					if writes {
						mutex = e.RWMutex("x").Writer()
						testkit.Pause(stop, time.Duration(random.IntN(80))*time.Millisecond)
					}
					began := cputime.Now()
					h := wanted(mutex, random)
					if d := began.Elapsed(); h != nil {
						for was := worst[kind].Load(); int64(d) > was && !worst[kind].CompareAndSwap(was, int64(d)); was = worst[kind].Load() {
						}
					} else {
						continue
					}
					granted.Add(1)
					if n := l.enter(h, writes); n != 0 {
						t.Errorf("%s: %d others have it", mutex.Name(), n)
					}
					testkit.Pause(nil, time.Duration(random.IntN(3))*time.Millisecond)
					l.leave(h)
					if random.IntN(4) == 0 {
						h.UnlockAsync()
					} else if err := h.Unlock(context.Background()); err != nil {
						lost.Add(1)
					}
				}
			})
		}
	}
	trouble.Go(func() {
		random := rand.New(rand.NewPCG(seed, 99))
		for testkit.Pause(stop, time.Duration(random.IntN(100))*time.Millisecond) {
			if random.IntN(2) == 0 {
				s.Do("SCRIPT", "FLUSH")
			} else {
				s.Do("CLIENT", "PAUSE", fmt.Sprint(random.IntN(40)), "WRITE")
			}
		}
	})
	handed := func() (n int64) {
		for _, place := range places {
			n += int64(place.Load().Stats().HandedOver)
		}
		return n + handedOver.Load()
	}
	began := cputime.Now()
	for testkit.Pause(nil, length); handed() == 0 && began.Elapsed() < time.Minute; { // a busy machine may need longer
		testkit.Pause(nil, 100*time.Millisecond)
	}
	close(stop)
	trouble.Wait()
	s.Do("CLIENT", "UNPAUSE")
	work.Wait()
	var open []*engine.Engine
	for _, place := range places {
		open = append(open, place.Load())
	}
	r, w := time.Duration(worst[0].Load()), time.Duration(worst[1].Load())
	t.Logf("%d cuts, %d granted, %d of them joined, %d lost; longest wait: readers %v, writers %v",
		cuts.Load(), granted.Load(), handed(), lost.Load(), r, w)
	if w > longest || r > longest {
		t.Errorf("somebody waited for too long: readers %v, writers %v", r, w)
	}
	if handed() == 0 {
		t.Error("no reader has joined another")
	}
	testkit.Clean(t, s, open...)
}

// wanted asks for a lock in one of several ways; nil: it was not granted.
func wanted(m engine.Mutex, random *rand.Rand) (h *engine.Hold) {
	switch random.IntN(10) {
	case 0:
		h, _ = m.TryLock(context.Background())
	case 1:
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(random.IntN(20))*time.Millisecond)
		defer cancel()
		h, _ = m.Lock(ctx)
	case 2:
		f := m.LockAsync(context.Background())
		testkit.Pause(nil, time.Duration(random.IntN(3))*time.Millisecond)
		f.Abandon()
	case 3:
		h, _ = m.Lock(context.Background(), engine.Lease(time.Duration(500+random.IntN(1500))*time.Millisecond))
	default:
		h, _ = m.Lock(context.Background())
	}
	return h
}

// cut breaks the connections of an engine, mostly around a command, until stop is closed.
func cut(p *faultproxy.Proxy, random *rand.Rand, stop <-chan struct{}, cuts *atomic.Int64) {
	scripts := []*script.Script{script.ReadAcquire, script.WriteAcquire, script.RWRelease, script.ReadRenew, script.Renew}
	command := func(c faultproxy.Command) bool {
		return slices.ContainsFunc(scripts, func(s *script.Script) bool { return testkit.Calls(s)(c) })
	}
	for testkit.Pause(stop, time.Duration(random.IntN(1200))*time.Millisecond) {
		cuts.Add(1)
		var trap *faultproxy.Trap
		switch random.IntN(3) {
		case 0:
			p.Cut(faultproxy.All)
			continue
		case 1:
			trap = p.CutAfterRequest(command) // executed, and the answer is lost
		case 2:
			trap = p.CutBeforeRequest(command)
		}
		testkit.Pause(stop, time.Duration(random.IntN(60))*time.Millisecond)
		trap.Remove()
	}
}
