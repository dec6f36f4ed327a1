package inspect

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/pawl-lock/pawl/engine"

	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, testkit.Endless()...) }

// inspected is an engine that asks others, and answers them.
func inspected(c *engine.Config) { c.NoInspect = false }
