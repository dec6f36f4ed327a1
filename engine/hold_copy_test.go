package engine

import (
	"os/exec"
	"strings"
	"testing"
)

// A copy of a Hold is not what the garbage collector watches, so that a lock which nobody can unlock
// would not be reported. The copy is found before the program runs.
func TestVet_CopiedHolds_AreFound(t *testing.T) {
	t.Parallel()
	said, err := exec.Command("go", "vet", "./testdata/copies").CombinedOutput()
	if err == nil {
		t.Fatal("go vet finds nothing")
	}
	for _, what := range []string{"Hold", "Permits", "Future[int]"} {
		if !strings.Contains(string(said), "engine."+what+" contains") {
			t.Errorf("a copied %s is not found:\n%s", what, said)
		}
	}
}
