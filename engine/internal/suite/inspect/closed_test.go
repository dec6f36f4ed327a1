package inspect

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// An engine that is closed says so, and asks nobody.
func TestEngine_Closed_LooksAtNothing(t *testing.T) {
	t.Parallel()
	e := testkit.Open(t, testkit.Server(t).URL(), inspected)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	for what, look := range map[string]func() error{
		"Inspect":   func() error { return testkit.ErrOf(e.Inspect(testkit.Ctx(t), "x")) },
		"Deadlocks": func() error { return testkit.ErrOf(e.Deadlocks(testkit.Ctx(t))) },
		"List": func() (failed error) {
			for _, err := range e.List(testkit.Ctx(t), "*") {
				failed = err
			}
			return failed
		},
	} {
		began := cputime.Now()
		if err := look(); !errors.Is(err, engine.ErrClosed) || errors.Is(err, engine.ErrUnavailable) {
			t.Errorf("%s: %v", what, err)
		}
		if took := began.Elapsed(); took > 500*time.Millisecond {
			t.Errorf("%s took %v", what, took)
		}
	}
}

// One that is closed while it looks does not go on looking.
func TestEngine_ClosedMeanwhile_LooksNoLonger(t *testing.T) {
	t.Parallel()
	const patience = 20 * time.Second
	_, p, e := testkit.Behind(t, inspected, func(cfg *engine.Config) { cfg.CommandTimeout, cfg.CloseTimeout = patience, time.Millisecond })
	p.Blackhole(faultproxy.All)
	asked := e.Stats().Commands
	result := make(chan error, 1)
	go func() {
		for _, err := range e.List(testkit.Ctx(t), "*") {
			result <- err
		}
	}()
	testkit.Eventually(t, "it has asked", func() bool { return e.Stats().Commands > asked })
	began := cputime.Now()
	_ = e.Close() // it cannot say goodbye
	if err := testkit.Receive(t, result); !errors.Is(err, engine.ErrClosed) || errors.Is(err, engine.ErrUnavailable) {
		t.Error(err)
	}
	if took := began.Elapsed(); took > patience/4 {
		t.Errorf("it took %v", took)
	}
}
