package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/fakenode"
)

// busyLane is an engine whose only command that may be in flight is out until the gate
// opens.
func busyLane(t *testing.T) (n *fakenode.Node, e *engine.Engine, h *engine.Hold, gate *fakenode.Gate) {
	t.Helper()
	n, gate = fakenode.New(t), fakenode.NewGate()
	n.On(testkit.Calls(script.Acquire), fakenode.Int(script.Granted))
	n.On(testkit.Calls(script.Release), fakenode.Int(script.Done))
	n.On(testkit.Calls(script.State), fakenode.Raw("*2\r\n*0\r\n:-2\r\n"))
	e = testkit.Open(t, "redis://"+n.Addr()+"?command_conns=1", testkit.Patient, func(c *engine.Config) { c.MaxInFlight = 1 })
	h = testkit.MustLock(t, e.Mutex("held"))
	n.OnNext(1, testkit.Calls(script.Acquire), fakenode.Hold(gate, fakenode.Int(script.Granted)))
	e.Mutex("slow").LockAsync(testkit.Ctx(t))
	n.WaitFor(2, testkit.Calls(script.Acquire))
	return n, e, h, gate
}

func TestAFullLaneSendsReleasesBeforeAcquires(t *testing.T) {
	t.Parallel()
	n, e, h, gate := busyLane(t)
	ctx := testkit.Ctx(t)
	const names = 20
	var all sync.WaitGroup
	for i := range names {
		all.Go(func() {
			if _, err := e.Mutex(fmt.Sprint("other", i)).Lock(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	testkit.Eventually(t, "all wait", func() bool { return e.Stats().Waiting == names+1 })
	released := h.UnlockAsync()
	gate.Open()
	if _, err := released.Await(ctx); err != nil {
		t.Errorf("Unlock: %v", err)
	}
	all.Wait()
	// The two of busyLane, then the release.
	if got := n.Commands(fakenode.Is("EVALSHA"))[2]; got.Words[1] != script.Release.SHA {
		t.Errorf("the first command that was sent when there was room: %v", got.Words)
	}
}

func TestAFullLaneServesFirstComeFirstServed(t *testing.T) {
	t.Parallel()
	n, e, _, gate := busyLane(t)
	ctx := testkit.Ctx(t)
	var want []string
	var all sync.WaitGroup
	for i := range 20 {
		name := fmt.Sprintf("other%02d", i)
		want = append(want, name)
		all.Go(func() {
			if _, err := e.Mutex(name).Lock(ctx); err != nil {
				t.Error(err)
			}
		})
		testkit.Eventually(t, "it waits", func() bool { return e.Stats().Waiting == i+2 })
	}
	gate.Open()
	all.Wait()
	inTurn(t, n.Commands(testkit.Calls(script.Acquire))[2:], want)
}

// A durable connection is a queue, too.
func TestAFullDurableLaneServesFirstComeFirstServed(t *testing.T) {
	t.Parallel()
	n, gate := fakenode.New(t), fakenode.NewGate()
	n.On(testkit.Calls(script.Acquire), fakenode.Int(script.Granted))
	n.On(testkit.Calls(script.Release), fakenode.Int(script.Done))
	n.On(fakenode.Is("ROLE"), fakenode.Raw("*3\r\n$6\r\nmaster\r\n:0\r\n*1\r\n*3\r\n$8\r\n10.0.0.2\r\n$4\r\n7001\r\n$1\r\n0\r\n"))
	n.On(fakenode.Is("WAIT"), fakenode.Int(1))
	n.OnNext(1, fakenode.Is("WAIT"), fakenode.Hold(gate, fakenode.Int(1)))
	e := testkit.Open(t, "redis://"+n.Addr()+"?replicas=1", testkit.Patient, func(c *engine.Config) { c.MaxInFlight = 1 })
	ctx := testkit.Ctx(t)
	var want []string
	var all sync.WaitGroup
	for i := range 20 {
		name := fmt.Sprintf("name%02d", i)
		want = append(want, name)
		all.Go(func() {
			if _, err := e.Mutex(name).Lock(ctx); err != nil {
				t.Error(err)
			}
		})
		if i == 0 {
			n.WaitFor(1, fakenode.Is("WAIT"))
		}
		testkit.Eventually(t, "it waits", func() bool { return e.Stats().Waiting == i+1 })
	}
	if _, err := e.Mutex("async").LockAsync(ctx).Result(); !errors.Is(err, engine.ErrOverloaded) {
		t.Errorf("LockAsync: %v", err)
	}
	gate.Open()
	all.Wait()
	inTurn(t, n.Commands(testkit.Calls(script.Acquire)), want)
}

// inTurn fails the test unless names were asked for in this order, but for three: a
// goroutine is counted as waiting before it has its place, and if it does not get to run in
// between, others come before it.
func inTurn(t *testing.T, acquires []fakenode.Command, want []string) {
	t.Helper()
	var got []string
	for _, c := range acquires {
		got = append(got, c.Words[3])
	}
	most := 0                        // of names that were asked for in order
	longest := make([]int, len(got)) // of those, how many up to each
	for i, name := range got {
		longest[i] = 1
		for j := range i {
			if slices.Index(want, got[j]) < slices.Index(want, name) {
				longest[i] = max(longest[i], longest[j]+1)
			}
		}
		most = max(most, longest[i])
	}
	if most < len(want)-3 {
		t.Errorf("asked for in the order %v", got)
	}
	if len(got) != len(want) {
		t.Errorf("%d acquires of %d names", len(got), len(want))
	}
}

func TestCallThatLeavesAFullLaneIsNotSent(t *testing.T) {
	t.Parallel()
	n, e, h, gate := busyLane(t)
	ctx, cancel := context.WithCancel(testkit.Ctx(t))
	failed := make(chan error, 2)
	go func() { _, err := e.Mutex("left").Lock(ctx); failed <- err }()
	go func() { _, err := e.Mutex("looked").State(ctx); failed <- err }()
	testkit.Eventually(t, "it waits", func() bool { return e.Stats().Waiting == 2 })
	cancel()
	for range 2 {
		if err := testkit.Receive(t, failed); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	}
	gate.Open()
	testkit.MustUnlock(t, h)
	if got := n.Commands(fakenode.Has("left")); len(got) > 0 {
		t.Errorf("sent: %v", got)
	}
}

func TestAFutureOnAFullLaneIsBornFailed(t *testing.T) {
	t.Parallel()
	_, e, _, gate := busyLane(t)
	defer gate.Open()
	if _, err := e.Mutex("late").LockAsync(testkit.Ctx(t)).Result(); !errors.Is(err, engine.ErrOverloaded) {
		t.Errorf("%v", err)
	}
}

// BenchmarkUnlockUnderOverload is how long Unlock takes with many more names in use than
// commands may be in flight, and with the default limit.
func BenchmarkUnlockUnderOverload(b *testing.B) {
	for _, limit := range []int{0, 64, 8} {
		b.Run(fmt.Sprint("MaxInFlight=", limit), func(b *testing.B) {
			s := testkit.Server(b)
			e := testkit.Open(b, s.URL(), func(c *engine.Config) { c.MaxInFlight = limit })
			ctx := context.Background()
			const names = 500
			took := make([][]time.Duration, names)
			var all sync.WaitGroup
			for i := range names {
				m := e.Mutex(fmt.Sprint("n", i))
				all.Go(func() {
					for range b.N / names {
						h, err := m.Lock(ctx)
						if err != nil {
							b.Error(err)
							return
						}
						began := time.Now()
						if err := h.Unlock(ctx); err != nil {
							b.Error(err)
						}
						took[i] = append(took[i], time.Since(began))
					}
				})
			}
			all.Wait()
			every := slices.Concat(took...)
			if len(every) == 0 {
				return
			}
			slices.Sort(every)
			b.ReportMetric(float64(every[len(every)/2].Microseconds()), "p50-us")
			b.ReportMetric(float64(every[len(every)*99/100].Microseconds()), "p99-us")
			b.ReportMetric(float64(every[len(every)-1].Microseconds()), "max-us")
		})
	}
}
