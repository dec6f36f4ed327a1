package front

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, testkit.Endless()...) }
