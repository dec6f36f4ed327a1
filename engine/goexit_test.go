package engine

import (
	"runtime"
	"testing"
)

// A function of the user's may end its goroutine: t.Fatal does. Or it panics, and the
// user's executor survives that. Those that are to be called after it are called.

// recovering is an executor whose workers survive a task.
func recovering(c *Config) {
	c.Executor = func(task func()) {
		go func() {
			defer func() { _ = recover() }()
			task()
		}()
	}
}

// inline is an executor that runs the task where it stands.
func inline(c *Config) { c.Executor = func(task func()) { task() } }

func TestCallbacksAfterOneThatDoesNotReturnAreCalled(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		executor func(*Config)
		end      func()
	}{
		"Goexit":                      {func(*Config) {}, runtime.Goexit},
		"Goexit on the user's worker": {recovering, runtime.Goexit},
		"Goexit in a task run inline": {inline, runtime.Goexit},
		"a panic that is recovered":   {recovering, func() { panic("a fault of a callback") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := open(t, server(t).URL(), test.executor)
			entered, gate := make(chan struct{}), make(chan struct{})
			f := e.Mutex("x").LockAsync(ctxT(t))
			f.OnComplete(func(*Hold, error) {
				close(entered)
				<-gate
				test.end()
			})
			told := make(chan string, 3)
			receive(t, entered)
			f.OnComplete(func(*Hold, error) { told <- "the second"; test.end() })
			f.OnComplete(func(*Hold, error) { told <- "the third"; test.end() })
			close(gate)
			for _, want := range []string{"the second", "the third"} {
				if got := receive(t, told); got != want {
					t.Errorf("called: %s, want %s", got, want)
				}
			}
			f.OnComplete(func(h *Hold, _ error) { h.UnlockAsync(); told <- "later" })
			receive(t, told)
			// Those of other futures, too.
			other := e.Mutex("y").LockAsync(ctxT(t))
			other.OnComplete(func(h *Hold, _ error) { h.UnlockAsync(); told <- "another's" })
			receive(t, told)
			if err := e.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
}

func TestHooksAfterOneThatEndsItsGoroutineAreCalled(t *testing.T) {
	t.Parallel()
	names := make(chan string, 8)
	e := open(t, server(t).URL(), func(c *Config) {
		c.Hooks.Acquired = func(ev AcquiredEvent) {
			names <- ev.Name
			runtime.Goexit()
		}
	})
	for _, name := range []string{"a", "b", "c"} {
		mustUnlock(t, mustLock(t, e.Mutex(name)))
	}
	for _, want := range []string{"a", "b", "c"} {
		if got := receive(t, names); got != want {
			t.Errorf("the hook was told of %q, want %q", got, want)
		}
	}
	if err := e.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}
