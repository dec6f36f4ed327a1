package invariants

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A panic under FailStop ends the process although a caller recovers.
func TestFailStop_CallerRecovers_EndsTheProcess(t *testing.T) {
	if os.Getenv("PAWL_TEST_FAILSTOP") != "" {
		defer func() { _ = recover() }()
		func() {
			defer FailStop()
			panic("broken")
		}()
		return
	}
	t.Parallel()
	cmd := exec.Command(os.Args[0], "-test.run=^TestFailStop_CallerRecovers_EndsTheProcess$")
	cmd.Env = append(os.Environ(), "PAWL_TEST_FAILSTOP=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "BUG: pawl: broken") {
		t.Fatalf("%v\n%s", err, out)
	}
}
