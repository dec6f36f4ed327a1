package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/exit"
)

// What source <(pawl completion ...) would run must be a script, or an error.
func TestCompletionForNoShellIsWrongUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"completion"}, {"completion", "tcsh"}, {"completion", "bash", "zsh"}} {
		v := pawl(t, nil, args...)
		v.expect(t, exit.Usage, "pawl: ")
		if v.stdout.Len() > 0 {
			t.Errorf("%q prints %q", args, v.stdout.String())
		}
	}
	pawl(t, nil, "completion", "bash").expect(t, 0, "__start_pawl")
}

func TestHelpForNoCommandIsWrongUsage(t *testing.T) {
	t.Parallel()
	pawl(t, nil, "help", "statsu").expect(t, exit.Usage, `pawl: there is no command "statsu" (see pawl --help)`)
	pawl(t, nil, "help", "exec", "name").expect(t, exit.Usage, `no command "exec name"`)
	pawl(t, nil, "help", "completion", "bash").expect(t, 0, "pawl completion bash")
	pawl(t, nil, "help", "exec").expect(t, 0, "--min-hold")
	pawl(t, nil, "help").expect(t, 0, "Available Commands")
}

// A shell asks the hidden command __complete.
func TestCompletion(t *testing.T) {
	t.Parallel()
	const files, noFiles = ":0", ":4"
	for line, want := range map[string][]string{
		"bench ":                  {"single", "uncontended", "hot", "waiters", "held", noFiles},
		"bench hot ":              {noFiles},
		"bench --format ":         {"text", "json", noFiles},
		"bench waiters --finish ": {"serve", "cancel", "abandon", noFiles},
		"status --format ":        {"text", "json", "jsonl", noFiles},
		"status ":                 {noFiles},
		"exec --on-lost ":         {"term", "ignore", noFiles},
		"exec --kind ":            {"mutex", "fair", "fenced", "read", "write", "semaphore", noFiles},
		"exec ":                   {noFiles},
		"exec name -- ":           {files},
		"status --cacert ":        {files},
	} {
		words := strings.Split(line, " ")
		v := pawl(t, nil, append([]string{"__complete"}, words...)...)
		v.expect(t, 0)
		if got := strings.Fields(v.stdout.String()); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
}
