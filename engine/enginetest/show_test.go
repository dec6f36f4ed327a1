package enginetest_test

import (
	"fmt"
	"testing"

	"github.com/pawl-lock/pawl/engine/enginetest"
	"github.com/pawl-lock/pawl/internal/redacttest"
)

// An Env is printed while other goroutines of the test use it.
func TestAnEnvPrintsItsAddressOnly(t *testing.T) {
	t.Parallel()
	env := enginetest.New(t)
	opened := make(chan struct{})
	go func() {
		defer close(opened)
		for range 5 {
			env.Open()
		}
	}()
	redacttest.Every(t, map[string][]any{"Env": {env}})
	<-opened
	if got, want := fmt.Sprint(env), "Env("+env.URL+")"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
