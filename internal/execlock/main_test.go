package execlock

import (
	"os"
	"os/signal"
	"testing"

	"go.uber.org/goleak"
)

// helpers are what this program does for a test that starts it with helperEnv.
var helpers = map[string]func(){}

const helperEnv = "EXECLOCK_TEST_HELPER"

func TestMain(m *testing.M) {
	if help := helpers[os.Getenv(helperEnv)]; help != nil {
		help()
		return
	}
	// The first call starts a goroutine for good, which must not be in a bubble.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	signal.Reset(os.Interrupt)
	goleak.VerifyTestMain(m,
		// gnet's worker pool starts these two when it is imported; they never end.
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"),
	)
}
