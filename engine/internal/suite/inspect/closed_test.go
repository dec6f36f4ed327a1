package inspect

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
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
