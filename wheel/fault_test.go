package wheel

import (
	"context"
	"reflect"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/RussellLuo/timingwheel"
	"github.com/RussellLuo/timingwheel/delayqueue"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/internal/cputime"
)

// firstOnly gives a fault to the first library and none to its successors.
func firstOnly(f labFault) func(int64) labFault {
	return func(n int64) labFault {
		if n == 1 {
			return f
		}
		return sound
	}
}

// heard collects what OnRebuild is told.
type heard struct{ reasons chan string }

func newHeard() heard { return heard{make(chan string, 1000)} }

func (h heard) hear(reason string) { h.reasons <- reason }

func (h heard) await(t testing.TB, want string) {
	t.Helper()
	ctx, cancel := cputime.WithTimeout(context.Background(), patience)
	defer cancel()
	select {
	case got := <-h.reasons:
		if got != want {
			t.Fatalf("rebuilt because it %s, want %s", got, want)
		}
	case <-ctx.Done():
		t.Fatal("no rebuild: want one because it " + want)
	}
}

// deadlock brings a library into the state that a stalled adder brings it to,
// without the stall:
//
//  1. Adder X puts a timer into bucket b and stalls before b.SetExpiration(E).
//  2. The clock passes E. Adder Y puts a timer one revolution later into b.
//  3. X goes on: b is queued again, for E, which is over; so it is flushed now.
//  4. Flush holds b's mutex and adds Y's timer back, to b: it waits for itself.
//
// Here Y's timer is put into its bucket, and the bucket queued again for a time
// that is over.
func deadlock(tw *timingwheel.TimingWheel) {
	y := tw.AfterFunc(5*time.Second, func() {})
	field := reflect.ValueOf(y).Elem().FieldByName("b")
	bucket := field.UnsafePointer()
	bucketType := reflect.ValueOf(tw).Elem().FieldByName("buckets").Type().Elem().Elem()
	queue := (*delayqueue.DelayQueue)(reflect.ValueOf(tw).Elem().FieldByName("queue").UnsafePointer())

	over := time.Now().UnixMilli() - 1000
	expiration := (*int64)(unsafe.Pointer(uintptr(bucket) + bucketField(bucketType, "expiration")))
	atomic.StoreInt64(expiration, over)
	queue.Offer(reflect.NewAt(bucketType, bucket).Interface(), over)
}

func bucketField(typ reflect.Type, name string) uintptr {
	f, ok := typ.FieldByName(name)
	if !ok {
		panic("the library's bucket has changed")
	}
	return f.Offset
}

func TestTimersFireThoughTheLibraryDeadlocks(t *testing.T) {
	t.Parallel()
	// A library that gets no time for two seconds is replaced, too.
	cputime.Steady(t, 50*time.Millisecond, func(t testing.TB) {
		h := newHeard()
		libraries := make(chan *timingwheel.TimingWheel, 10)
		w := New(Config{
			OnRebuild: h.hear,
			newLibrary: func(tick time.Duration, size int64) library {
				lib := newLibrary(tick, size)
				libraries <- lib.(timingWheel).TimingWheel
				return lib
			},
		})
		first := newProbes(300)
		for i, p := range first {
			p.scheduleIn(w, time.Duration(i)*20*time.Millisecond)
		}
		awaitFires(t, first[:10], 1)
		deadlock(<-libraries)
		h.await(t, RebuildStalled)

		second := newProbes(300)
		for i, p := range second {
			p.scheduleIn(w, time.Duration(i)*time.Millisecond)
		}
		awaitFires(t, first, 1)
		awaitFires(t, second, 1)
		s := w.Stats()
		if s.Abandoned != 1 || s.Rebuilds.Stalled != 1 || s.Rebuilds.Total() != 1 {
			t.Errorf("stats %+v: is the library sound by now?", s)
		}
		start, used := time.Now(), cputime.Now()
		w.Close()
		if d := time.Since(start); d < stopTimeout/2 || used.Elapsed() > patience {
			t.Errorf("Close took %v with a dead library behind it", d)
		}
	})
}

func TestTimersFireThoughTheLibraryHangs(t *testing.T) {
	t.Parallel()
	h := newHeard()
	lib := &lab{fault: firstOnly(hung), release: make(chan struct{})}
	w := New(Config{OnRebuild: h.hear, newLibrary: lib.new})
	probes := newProbes(300)
	for i, p := range probes {
		p.scheduleIn(w, time.Duration(i)*15*time.Millisecond) // must not hang
	}
	h.await(t, RebuildStalled)
	awaitFires(t, probes, 1)
	if s := w.Stats(); s.Abandoned != 1 {
		t.Errorf("stats %+v", s)
	}
	close(lib.release)
	eventually(t, "old library gone", func() bool { return w.Stats().Abandoned == 0 })
	w.Close()
}

func TestSilentLibraryIsReplaced(t *testing.T) {
	t.Parallel()
	h := newHeard()
	lib := &lab{fault: firstOnly(mute)}
	w := newWheel(t, Config{OnRebuild: h.hear, newLibrary: lib.new})
	far := newProbes(10)
	for i, p := range far {
		p.scheduleIn(w, 20*time.Second+time.Duration(i)*time.Second)
	}
	eventually(t, "far slots set", func() bool { return lib.slotTimers.Load() == int64(len(far)) })
	probes := newProbes(300)
	for i, p := range probes {
		p.scheduleIn(w, time.Duration(i)*5*time.Millisecond)
	}
	h.await(t, RebuildStalled)
	awaitFires(t, probes, 1) // thanks to the watcher alone
	eventually(t, "far slots set in the new library", func() bool {
		return lib.made.Load() == 2 && lib.latest.Load().calls() >= len(far)
	})
	if s := w.Stats(); s.Rebuilds.Stalled != 1 || s.Slots != len(far) {
		t.Errorf("stats %+v", s)
	}
}

func TestWatcherAloneKeepsTimersGoing(t *testing.T) {
	t.Parallel()
	lib := &lab{fault: func(int64) labFault { return mute }}
	w := newWheel(t, Config{newLibrary: lib.new})
	probes := newProbes(100)
	for i, p := range probes {
		p.scheduleIn(w, time.Duration(i)*30*time.Millisecond)
	}
	awaitFires(t, probes, 1)
}

func TestLibraryThatFiresEarlyIsReplacedAndNotBelieved(t *testing.T) {
	t.Parallel()
	h := newHeard()
	lib := &lab{fault: firstOnly(eager)}
	w := newWheel(t, Config{OnRebuild: h.hear, newLibrary: lib.new})
	probes := newProbes(300)
	for i, p := range probes {
		p.scheduleIn(w, time.Duration(i)*5*time.Millisecond)
	}
	h.await(t, RebuildFiredEarly)
	awaitFires(t, probes, 1)
	if s := w.Stats(); s.Rebuilds.FiredEarly != 1 {
		t.Errorf("stats %+v", s)
	}
}

func TestLibraryThatIsAlwaysEarlyIsNotReplacedInALoop(t *testing.T) {
	t.Parallel()
	lib := &lab{fault: func(int64) labFault { return eager }}
	w := newWheel(t, Config{newLibrary: lib.new})
	start := time.Now()
	probes := newProbes(100)
	for i, p := range probes {
		p.scheduleIn(w, time.Duration(i)*20*time.Millisecond)
	}
	awaitFires(t, probes, 1)
	// The second at once, the others after twice as many looks each.
	if n, most := lib.made.Load(), 3+int64(time.Since(start)/(stallLooks*watchPeriod)); n > most {
		t.Errorf("%d libraries in %v, want at most %d", n, time.Since(start), most)
	}
}

func TestALibraryThatAlwaysHangsIsReplacedEverMoreSeldom(t *testing.T) {
	t.Parallel()
	for want, early := range map[string]bool{RebuildStalled: false, RebuildFiredEarly: true} {
		var v view
		looks, waits := 0, []int(nil)
		for len(waits) < mostDoublings+3 {
			looks++
			if reason := v.judge(false, early, false); reason != "" {
				if reason != want {
					t.Fatalf("replaced because it %s, want %s", reason, want)
				}
				waits = append(waits, looks)
				looks = 0
				v.replaced(reason)
			}
		}
		first := stallLooks
		if early {
			first = 1
		}
		for i, got := range waits {
			due := stallLooks << min(i, mostDoublings)
			if i == 0 {
				due = first
			}
			if got != due {
				t.Errorf("%s: replaced after %d looks, want %d (%v)", want, got, due, waits)
			}
		}
		v.judge(true, false, false) // it beats
		for looks = 1; v.judge(false, false, false) == ""; looks++ {
		}
		if looks != stallLooks {
			t.Errorf("%s: one that had lived was replaced after %d looks, want %d", want, looks, stallLooks)
		}
	}
}

func TestLateAndDoubleFiresOfTheLibraryDoNothing(t *testing.T) {
	t.Parallel()
	rng := seeded(t)
	lib := &lab{fault: func(int64) labFault { return double }}
	w := newWheel(t, Config{newLibrary: lib.new})
	probes := newProbes(1000)
	for _, p := range probes {
		p.scheduleIn(w, 200*time.Millisecond+upTo(rng, 400*time.Millisecond))
	}
	for _, p := range probes[:500] { // again, into other slots
		p.scheduleIn(w, 200*time.Millisecond+upTo(rng, 800*time.Millisecond))
	}
	awaitFires(t, probes, 1)
	if s := w.Stats(); s.Rebuilds.Total() != 0 {
		t.Errorf("stats %+v", s)
	}
}

// stepClock is the machine's clock with a wall clock that can be set.
type stepClock struct {
	clock.Clock
	lab *lab
}

func (c stepClock) Wall() time.Time {
	return c.Clock.Wall().Add(time.Duration(c.lab.offset.Load()))
}

func TestClockStepsDoNotMoveTimers(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]time.Duration{"forward": time.Hour, "back": -time.Hour, "back a little": -time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHeard()
			lib := new(lab)
			w := newWheel(t, Config{Clock: stepClock{clock.System(), lib}, OnRebuild: h.hear, newLibrary: lib.new})
			probes := newProbes(300)
			for i, p := range probes {
				p.scheduleIn(w, time.Duration(i)*10*time.Millisecond)
			}
			eventually(t, "first half", func() bool { return probes[50].fires.Load() == 1 })
			lib.offset.Add(int64(step))
			h.await(t, RebuildClockStepped)
			awaitFires(t, probes, 1)
			s := w.Stats()
			if s.Rebuilds.ClockStepped != 1 || s.Rebuilds.Total() != 1 {
				t.Errorf("stats %+v", s)
			}
		})
	}
}

func TestSlewedWallClockIsNotAStep(t *testing.T) {
	t.Parallel()
	f := clock.NewFake()
	w := newWheel(t, Config{Clock: hiddenFake{f}})
	v := view{offset: w.wallOffset()}
	for range 10_000 {
		f.Advance(watchPeriod)
		f.Step(watchPeriod / 2000) // 500 ppm, the fastest that Linux slews
		if v.stepped(w) {
			t.Fatal("slewing was taken for a step")
		}
	}
	f.Step(-w.tick - stepSlack - 1)
	if !v.stepped(w) {
		t.Error("a step was not seen")
	}
}

// TestNoOverflowWheelIsBuilt looks into the library: overflow wheels are where its
// dead-lock, its lying Stop and its leaps in time live.
func TestNoOverflowWheelIsBuilt(t *testing.T) {
	t.Parallel()
	rng := seeded(t)
	var tw *timingwheel.TimingWheel
	w := newWheel(t, Config{newLibrary: func(tick time.Duration, size int64) library {
		lib := newLibrary(tick, size)
		tw = lib.(timingWheel).TimingWheel
		return lib
	}})
	overflow := func() bool { // the field is read while the library may write it
		p := (*unsafe.Pointer)(unsafe.Pointer(reflect.ValueOf(tw).Elem().FieldByName("overflowWheel").UnsafeAddr()))
		return atomic.LoadPointer(p) != nil
	}
	for start := time.Now(); time.Since(start) < 1500*time.Millisecond; time.Sleep(time.Millisecond) { // for that long nothing may happen
		for range 5 {
			newProbe().scheduleIn(w, upTo(rng, []time.Duration{time.Second, 2 * hop, 24 * time.Hour}[rng.IntN(3)]))
		}
	}
	if overflow() {
		t.Error("the library has an overflow wheel")
	}
	tw.AfterFunc(24*time.Hour, func() {})
	if !overflow() {
		t.Error("this test does not see overflow wheels")
	}
}

func TestFarTimersFireAtEveryExtremeOfConfig(t *testing.T) {
	t.Parallel()
	for _, cfg := range []Config{{Tick: 1, Size: 1}, {Tick: time.Hour, Size: 1}, {Tick: time.Millisecond, Size: 20_000}} {
		f := clock.NewFake()
		cfg.Clock = f
		w := newWheel(t, cfg)
		probes := newProbes(100)
		for i, p := range probes {
			p.scheduleIn(w, time.Duration(i)*1700*time.Millisecond)
		}
		for range 200 {
			f.Advance(time.Second)
			settle(t, w)
		}
		awaitFires(t, probes, 1)
	}
}

// A driver that was late, or a clock that jumped, must not give the library a short delay.
func TestASlotThatIsSetTooLateIsEmptiedAtOnce(t *testing.T) {
	t.Parallel()
	f := clock.NewFake()
	lib := new(lab)
	w := newWheel(t, Config{Clock: hiddenFake{f}, newLibrary: lib.new})
	p := newProbe()
	p.scheduleIn(w, 10*time.Second)
	eventually(t, "slot set", func() bool { return lib.slotTimers.Load() == 1 })
	const near = slotLead/tickGrains + 1
	f.Advance(10*time.Second - near*w.tick) // but not overdue: the watcher leaves it
	w.mu.era.setSlot(p.due.Load() / w.grain / tickGrains)
	if s := w.Stats(); lib.slotTimers.Load() != 1 || s.Slots != 0 || s.Armed != 1 {
		t.Errorf("%d timers of the library, stats %+v", lib.slotTimers.Load(), s)
	}
	f.Advance(near * w.tick)
	awaitFires(t, []*probe{p}, 1)
}

func TestLibraryDelaysStayWithinWhatIsSafe(t *testing.T) {
	t.Parallel()
	rng := seeded(t)
	for name, cfg := range map[string]Config{
		"default": {},
		"small":   {Tick: 5 * time.Millisecond, Size: 1},
		"stretch": {Tick: 100 * time.Millisecond, Size: 300},
		"least":   {Tick: 1, Size: 1},
		"coarse":  {Tick: time.Hour, Size: 1},
	} {
		lib := new(lab)
		var size int64
		cfg.newLibrary = func(tick time.Duration, n int64) library { size = n; return lib.new(tick, n) }
		w := newWheel(t, cfg)
		for range 3000 {
			p := newProbe()
			p.scheduleIn(w, upTo(rng, []time.Duration{time.Second, 20 * time.Second, time.Minute, time.Hour}[rng.IntN(4)]))
		}
		eventually(t, "slots set", func() bool { return lib.slotTimers.Load() > 5 })
		interval := time.Duration(size) * w.tick
		shortest, longest := time.Duration(lib.minDelay.Load()), time.Duration(lib.maxDelay.Load())
		if shortest < 3*w.tick {
			t.Errorf("%s: a delay of %v, under three ticks", name, shortest)
		}
		if longest > hop || 2*longest > interval*5/8 || interval < minInterval {
			t.Errorf("%s: a delay of %v in a wheel that spans %v", name, longest, interval)
		}
		if name == "default" && 2*longest+time.Minute > interval {
			t.Errorf("a delay of %v in a wheel that spans %v: no room for a minute of stall", longest, interval)
		}
	}
}
