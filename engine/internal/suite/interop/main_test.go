package interop

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// variable says whether the internal/suite runs, and how much of it.
const variable = "PAWL_INTEROP"

// short is the run that every change gets.
var short bool

// TestMain runs nothing unless it is asked to. If it is, nothing is skipped: without Java
// the tests fail.
func TestMain(m *testing.M) {
	switch v := os.Getenv(variable); v {
	case "":
		fmt.Println("NOT TESTED: Pawl beside Redisson. That needs Java: make interop")
	case "short", "full":
		short = v == "short"
		goleak.VerifyTestMain(suite{m}, testkit.Endless()...)
	default:
		fmt.Printf("%s is %q; it must be short or full\n", variable, v)
		os.Exit(2)
	}
}

// internal/suite ends the JVM that the tests shared.
type suite struct{ *testing.M }

func (s suite) Run() int {
	code := s.M.Run()
	shared.end()
	return code
}

// pick is how much of something a run has.
func pick[T any](inShort, inFull T) T {
	if short {
		return inShort
	}
	return inFull
}
