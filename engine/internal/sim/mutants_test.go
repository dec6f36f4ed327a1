//go:build !race

package sim

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	mutate     = flag.Duration("sim.mutants", 0, "run each mutant, for so long at most")
	mutateFrom = flag.Int("sim.from", 0, "run mutants from this one on")
	mutateTo   = flag.Int("sim.to", len(mutants)-1, "run mutants up to this one")
)

// mutant is a small change of the engine that breaks a promise. A simulation that does not
// find it has a hole.
type mutant struct {
	file string // of engine
	was  string // once in the file
	is   string
	// why it must be found; or "survives: ..." with the reason, or "rare: ...", if it takes the
	// simulation minutes: then the tests of its package find it.
	why string
}

// Each mutant is a change that applies, and compiles. With -sim.mutants=1m each is run, which takes
// minutes: it must fail, or survive for the reason that it gives.
func TestMutantsAreFound(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	var dirs []string
	for _, m := range mutants {
		if dir := filepath.Dir(filepath.Join(root, m.file)); !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	c := newCompiler(t, dirs)
	for i, m := range mutants {
		file := filepath.Join(root, m.file)
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(src), m.was); n != 1 {
			t.Errorf("mutant %d: %s has its text %d times:\n%s", i, m.file, n, m.was)
			continue
		}
		text := strings.Replace(string(src), m.was, m.is, 1)
		if err := c.compile(file, text); err != nil {
			t.Errorf("mutant %d of %s does not compile: %v", i, m.file, err)
			continue
		}
		if *mutate > 0 && i >= *mutateFrom && i <= *mutateTo {
			m.run(t, i, file, text)
		}
	}
}

// run runs the simulation over a mutant, whose file has another text.
func (m mutant) run(t *testing.T, i int, file, text string) {
	t.Helper()
	dir := t.TempDir()
	changed := filepath.Join(dir, "changed.go")
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {file: changed}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{changed: text, filepath.Join(dir, "overlay.json"): string(overlay)} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if strings.HasPrefix(m.why, "rare: ") {
		test := exec.Command("go", "test", "-vet=off", "-overlay", filepath.Join(dir, "overlay.json"), filepath.Dir(file))
		if out, err := test.CombinedOutput(); err == nil || !strings.Contains(string(out), "--- FAIL") {
			t.Errorf("mutant %d of %s: its package's tests do not find it: %s\n%s", i, m.file, m.why, out)
		}
		return
	}
	start := time.Now()
	binary := filepath.Join(dir, "sim.test")
	build := exec.Command("go", "test", "-c", "-vet=off", "-overlay", filepath.Join(dir, "overlay.json"), "-o", binary, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Errorf("mutant %d does not compile: %s\n%s", i, err, out)
		return
	}
	built := time.Since(start)
	out, err := exec.Command(binary, "-test.run=^TestNoSeedBreaksAPromise$", fmt.Sprintf("-sim.time=%v", *mutate)).CombinedOutput()
	found := err != nil
	said := "nothing"
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "seed ") || strings.Contains(line, "panic: ") {
			said = strings.TrimSpace(line)
			break
		}
	}
	t.Logf("mutant %d, %s: found %v after %v (%s): %.150s", i, m.file, found, (time.Since(start) - built).Round(time.Millisecond), m.why, said)
	if found == strings.HasPrefix(m.why, "survives: ") {
		t.Errorf("mutant %d of %s: found %v, but: %s\n%s", i, m.file, found, m.why, m.was)
	}
}
