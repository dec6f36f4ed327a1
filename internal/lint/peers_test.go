package lint

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestPeers_Scripts_AreTheEngines compares copies with originals: bench/peers is a
// module of its own and cannot import engine/internal/script.
func TestPeers_Scripts_AreTheEngines(t *testing.T) {
	t.Parallel()
	root := moduleRoot(t)
	copies, err := filepath.Glob(filepath.Join(root, "bench/peers/lua/*.lua"))
	if err != nil || len(copies) == 0 {
		t.Fatalf("no scripts in bench/peers/lua (%v)", err)
	}
	for _, path := range copies {
		name := filepath.Base(path)
		original, err := os.ReadFile(filepath.Join(root, "engine/internal/script/lua", name))
		if err != nil {
			t.Error(err)
			continue
		}
		have, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(have, original) {
			t.Errorf("bench/peers/lua/%s differs from the engine's: copy it again, and check that "+
				"bench/peers/scripted.go passes the arguments of its first lines", name)
		}
	}
}
