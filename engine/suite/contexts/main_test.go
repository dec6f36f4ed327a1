package contexts

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/pawl-lock/pawl/engine/internal/kit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, kit.Endless()...) }
