package main

import (
	"os"
	"strings"
	"testing"
)

// What a command finds of its signals, its shell has decided: which are ignored, which
// are blocked. It is the same below pawl.
func TestExecsCommandFindsItsSignalsAsThePlainOneDoes(t *testing.T) {
	t.Parallel()
	_, env := server(t)
	const show = `grep -E '^Sig(Blk|Ign)' /proc/self/status`
	for name, script := range map[string]string{
		"as they are":            `$run ` + show,
		"as under nohup":         `trap '' HUP; $run ` + show,
		"not to be suspended":    `trap '' TSTP TTIN TTOU; $run ` + show,
		"in the shell's back":    `$run ` + show + ` & wait`,
		"with nobody to read it": `$run ` + show + ` 2>&-`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			seen := func(run string) string {
				v := prepare(t, env)
				v.cmd.Path, v.cmd.Args = "/bin/sh", []string{"sh", "-c", strings.ReplaceAll(script, "$run", run)}
				if err := v.cmd.Start(); err != nil {
					t.Fatal(err)
				}
				v.wait(t).expect(t, 0)
				return v.stdout.String()
			}
			lock := strings.ReplaceAll(name, " ", "-")
			if got, want := seen(self+" exec "+strings.ReplaceAll(lock, "'", "")+" --"), seen(""); got != want || want == "" {
				t.Errorf("under pawl:\n%splain:\n%s", got, want)
			}
		})
	}
}
