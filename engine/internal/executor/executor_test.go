package executor

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 30 * time.Second

func await(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("not within %v: %s", patience, what)
	}
}

func TestATaskThatBlocksDelaysNoOther(t *testing.T) {
	t.Parallel()
	var x Executor
	release, second := make(chan struct{}), make(chan struct{})
	x.Run(func() { <-release })
	x.Run(func() { close(second) })
	await(t, "the second task runs", second)
	idle := x.Idle()
	select {
	case <-idle:
		t.Error("idle while a task runs")
	default:
	}
	close(release)
	await(t, "it is idle", idle)
	await(t, "it is idle still", x.Idle())
}

// One goroutine hands the tasks over, so they come in order, and an executor that blocks holds
// up nobody who calls Run.
func TestACustomExecutorGetsTheTasksInOrder(t *testing.T) {
	t.Parallel()
	release, done := make(chan struct{}), make(chan struct{})
	var got []int
	var x Executor
	x.Init(nil, func(task func()) {
		<-release
		task()
	})
	const tasks = 100
	for i := range tasks {
		x.Run(func() {
			if got = append(got, i); i == tasks-1 {
				close(done)
			}
		})
	}
	close(release)
	await(t, "all have run", done)
	await(t, "it is idle", x.Idle())
	if len(got) != tasks || !slices.IsSorted(got) {
		t.Errorf("they ran in the order %v", got)
	}
}

// A task may end the goroutine that an executor runs it on. Those after it run anyway.
func TestATaskThatEndsItsGoroutineTakesNoOtherAlong(t *testing.T) {
	t.Parallel()
	for name, custom := range map[string]func(func()){
		"the default one":                     nil,
		"one that runs tasks where it stands": func(task func()) { task() },
	} {
		var x Executor
		x.Init(nil, custom)
		after := make(chan struct{})
		x.Run(func() { runtime.Goexit() })
		x.Run(func() { close(after) })
		await(t, name+": the next task runs", after)
		await(t, name+": it is idle", x.Idle())
	}
}

func TestATaskAfterCloseRunsAndNobodyWaitsForIt(t *testing.T) {
	t.Parallel()
	for _, custom := range []func(func()){nil, func(task func()) { go task() }} {
		var x Executor
		x.Init(nil, custom)
		x.Close()
		release, ran := make(chan struct{}), make(chan struct{})
		x.Run(func() {
			<-release
			close(ran)
		})
		await(t, "it is idle", x.Idle())
		close(release)
		await(t, "the task runs", ran)
	}
}

func TestGoroutinesAreStartedByWhatInitWasGiven(t *testing.T) {
	t.Parallel()
	started := 0
	var x Executor
	x.Init(func(f func()) { started++; f() }, nil)
	ran := false
	x.Run(func() { ran = true })
	x.Spawn(func() {})
	if !ran || started != 2 {
		t.Errorf("ran: %v, %d were started", ran, started)
	}
}
