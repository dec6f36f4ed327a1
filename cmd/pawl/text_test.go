package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/target"
	"github.com/pawl-lock/pawl/internal/redistest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares a text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test ./cmd/pawl -update writes it)", err)
	}
	gotLines, wantLines := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i, line := range gotLines {
		if i >= len(wantLines) || line != wantLines[i] {
			t.Errorf("%s differs from line %d on (go test ./cmd/pawl -update, and look at the difference):\n%s\n\nall of it:\n%s",
				path, i+1, line, got)
			return
		}
	}
	if len(wantLines) > len(gotLines) {
		t.Errorf("%s has %d lines more", path, len(wantLines)-len(gotLines))
	}
}

func TestHelpIsAsPinned(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"", "bench", "demo", "exec", "ping", "serve", "status", "unlock", "version", "web"} {
		v := pawl(t, nil, strings.Fields(command+" --help")...)
		v.expect(t, 0)
		golden(t, "help"+strings.TrimSuffix("_"+command, "_"), v.stdout.String())
	}
}

func TestEveryCommandHasHelpWithExamples(t *testing.T) {
	t.Parallel()
	for _, cmd := range newRootCommand().Commands() {
		if cmd.Hidden || cmd.Name() == "help" || cmd.Name() == "completion" {
			continue
		}
		if cmd.Short == "" || cmd.Long == "" || cmd.Example == "" {
			t.Errorf("%s lacks a text or an example", cmd.Name())
		}
	}
}

// serverWords is what depends on the time, on the server's version and on which connection was
// refused first.
var serverWords = regexp.MustCompile(`(handshake with SERVER:|WRONGTYPE|whose lease ends in)[^;\n]*`)

// TestErrorsSayWhatToDo pins exit codes and texts of mistakes.
func TestErrorsSayWhatToDo(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Password("right"))
	here := "redis://" + s.Addr() + "?dial_timeout=10s"
	s.Do("SET", "foreign", "of another library")
	hold(t, s.URL(), "taken")
	const nobody = "redis://127.0.0.1:1?dial_timeout=1s"
	right := []string{target.URLEnv + "=" + here, target.PasswordEnv + "=right"}

	var out bytes.Buffer
	for _, c := range []struct {
		env  []string
		args string
	}{
		{nil, "lock"},
		{nil, "ping now"},
		{nil, "ping --port 6379"},
		{nil, "status"},
		{nil, "unlock --force two names"},
		{right, "status a --format yaml"},
		{nil, "unlock a"},
		{nil, "unlock a --force --if-holder ="},
		{nil, "demo --workers 2"},
		{nil, "bench"},
		{nil, "bench everything"},
		{nil, "bench hot --processes 0"},
		{nil, "bench hot --processes 1001"},
		{nil, "bench hot --processes many"},
		{nil, "bench single --processes 2"},
		{nil, "bench hot --processes 2 --duration 1h"},
		{nil, "serve --listen nowhere"},

		{nil, "exec"},
		{nil, "exec a"},
		{nil, "exec a --"},
		{nil, "exec -- true"},
		{nil, "exec a true"},
		{nil, "exec a --and = -- true"},
		{nil, "exec deploy kubectl exec pod -- true"},
		{nil, "exec a b -- true"},
		{nil, "exec job ls -l"},
		{nil, "exec job rsync --archive a b"},
		{nil, "exec job -l"},
		{nil, "exec -l"},
		{nil, "exec job kubectl -n prod get pods -- true"},
		{nil, "exec job -n -- true"},
		{nil, "exec a --wait 5 -- true"},
		{nil, "exec a --lease 1.5 -- true"},
		{nil, "exec a --wait 1d -- true"},
		{nil, "bench single --duration 5"},
		{nil, "exec a --and b --min-hold 1s -- true"},
		{right, "exec free --and taken --wait 500ms -- true"},
		{right, "status free ="},
		{nil, "exec a --kind spin -- true"},
		{nil, "exec a --and b --kind semaphore -- true"},
		{nil, "exec a --and b --kind fenced -- true"},
		{nil, "exec a --permits 3 -- true"},
		{nil, "exec a --kind semaphore --permits 0 -- true"},
		{nil, "exec a --kind semaphore --min-hold 1s -- true"},
		{nil, "exec a --kind read --min-hold 1s -- true"},
		{nil, "exec a --kind read --quorum redis://h --quorum redis://i --quorum redis://j -- true"},
		{right, "exec foreign --kind write -- true"},
		{right, "exec none --kind semaphore --wait 0s -- true"},
		{nil, "exec a --on-lost shrug -- true"},
		{nil, "exec a --wait -1s -- true"},
		{nil, "exec a --wait soon -- true"},
		{nil, "exec a --grace -1s -- true"},
		{nil, "exec a --lease 0s -- true"},
		{nil, "exec a --max-hold 0s -- true"},
		{nil, "exec a --min-hold -1s -- true"},
		{nil, "exec a --lease 1s --max-hold 1s -- true"},
		{nil, "exec a --conflict-exit-code 256 -- true"},
		{nil, "exec a -- no-such-program"},
		{nil, "exec a -- ./main_test.go"},
		{right, "exec a --lease 1us -- true"},
		{right, "exec a --lease 1s --min-hold 2s -- true"},

		{nil, "ping --addr 127.0.0.1:6379"},
		{right, "ping --addr ="},
		{right, "demo --addr ="},
		{right, "bench single --addr ="},
		{nil, "web --listen 0.0.0.0:7390"},
		{nil, "web --listen :7390 --allow-unlock"},
		{nil, "web --listen 7390"},
		{nil, "web --every 1ms"},
		{nil, "web orders:1 orders:2"},
		{right, "web --listen 127.0.0.1:70000"},
		{nil, "ping --addr http://127.0.0.1"},
		{nil, "ping --addr redis://:secret@127.0.0.1"},
		{[]string{target.URLEnv + "=redis://:secret@127.0.0.1:6379/one"}, "ping"},
		{[]string{target.URLEnv + "=redis://:sec%ret@127.0.0.1:6379"}, "ping"},
		{nil, "ping --addr redis+cluster://127.0.0.1?sharded_pubsub=both"},
		{nil, "ping --addr " + nobody},
		{nil, "exec a --addr " + nobody + " -- true"},
		{nil, "ping --addr " + here},
		{[]string{target.PasswordEnv + "=secret"}, "ping --addr " + here},
		{[]string{target.URLEnv + "=redis://:secret@" + s.Addr()}, "ping"},
		{nil, "status a --addr redis://somebody@" + s.Addr()},
		{[]string{target.URLEnv + "=redis://secret@" + s.Addr()}, "ping"}, // a user, by its place

		{right, "status foreign"},
		{right, "exec foreign -- true"},
		{right, "exec taken --wait 500ms -- true"},
		{right, "exec taken --wait 500ms --conflict-exit-code 0 -- true"},
		{right, "unlock --force free"},
		{right, "unlock --force taken --if-holder somebody:1"},
	} {
		args := strings.Fields(c.args)
		for i := range args {
			args[i] = strings.TrimPrefix(args[i], "=") // "=" is an empty argument
		}
		v := pawl(t, c.env, args...)
		fmt.Fprintf(&out, "$ pawl %s\n%s%sexit code %d\n\n", c.args, v.stdout.String(), v.stderr.String(), v.code)
	}
	text := strings.ReplaceAll(out.String(), s.Addr(), "SERVER")
	if strings.Contains(strings.ReplaceAll(text, "--addr redis://:secret@", ""), "secret") {
		t.Error("a password was printed")
	}
	golden(t, "errors", serverWords.ReplaceAllString(text, "$1 ..."))
}

func TestVersionNamesModuleCommitAndGo(t *testing.T) {
	t.Parallel()
	v := pawl(t, nil, "version")
	v.expect(t, 0, "pawl ", "go1.")
	pawl(t, nil, "--version").expect(t, 0, v.stdout.String())
	var out bytes.Buffer
	err := printVersion(&out, &debug.BuildInfo{
		GoVersion: "go1.26.0", Main: debug.Module{Version: "v1.2.3"},
		Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123abcd"}, {Key: "vcs.modified", Value: "true"}},
	})
	if got, want := out.String(), "pawl v1.2.3\ncommit 0123abcd, with changes\ngo1.26.0 "; err != nil || !strings.HasPrefix(got, want) {
		t.Errorf("got %q, %v, want %q...", got, err, want)
	}
}
