package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/pawl-lock/pawl/internal/cputime"
)

// terminal is a pseudo terminal, seen from the side of the user who sits before it.
type terminal struct {
	t      *testing.T
	master *os.File
	v      *invocation
	mu     struct {
		sync.Mutex
		shown bytes.Buffer
	}
}

// atTerminal runs a shell script as a session of its own on a new terminal; $pawl is
// the command. What is suspended must not be forking all the time: a shell that waits
// for the exec of a child that was stopped before it is not stopped itself.
func atTerminal(t *testing.T, env []string, script string) *terminal {
	t.Helper()
	return onTerminal(t, env, "/bin/sh", "-c", script)
}

// onTerminal is atTerminal for any program.
func onTerminal(t *testing.T, env []string, command ...string) *terminal {
	t.Helper()
	v := prepare(t, env)
	v.cmd.Env = append(v.cmd.Env, "pawl="+v.cmd.Path)
	v.cmd.Path, v.cmd.Args = command[0], command
	v.cmd.Stdin, v.cmd.Stdout, v.cmd.Stderr = nil, nil, nil // of the terminal
	master, err := pty.Start(v.cmd)
	for range 10 {
		// The number of a terminal that is just being closed may be given out already, and
		// then cannot be opened: tests beside this one close theirs.
		if !errors.Is(err, syscall.EIO) {
			break
		}
		master, err = pty.Start(v.cmd)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	term := &terminal{t: t, master: master, v: v}
	go func() { _, _ = io.Copy(term, master) }() // ends with master
	return term
}

// Write takes what the terminal shows.
func (term *terminal) Write(b []byte) (int, error) {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.mu.shown.Write(b)
}

func (term *terminal) shown() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return strings.ReplaceAll(term.mu.shown.String(), "\r\n", "\n")
}

func (term *terminal) typeKeys(keys string) {
	term.t.Helper()
	if _, err := io.WriteString(term.master, keys); err != nil {
		term.t.Fatal(err)
	}
}

// awaitText waits until the terminal shows a text.
func (term *terminal) awaitText(text string) {
	term.t.Helper()
	for start := cputime.Now(); !strings.Contains(term.shown(), text); time.Sleep(5 * time.Millisecond) {
		if start.Elapsed() > patience {
			term.t.Fatalf("the terminal does not show %q:\n%s", text, term.shown())
		}
	}
}

func TestExecsCommandHasTheTerminalAndGivesItBack(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	term := atTerminal(t, env, `"$pawl" exec a -- sh -c 'echo up; read x; echo "command read $x"'
		read y; echo "script read $y"`)
	term.awaitText("up\n")
	term.typeKeys("one\n")
	term.awaitText("command read one")
	term.typeKeys("two\n")
	term.awaitText("script read two")
	term.v.wait(t)
	free(t, s, "a")
}

func TestCommandThatDoesNotStartLeavesTheTerminal(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	program := t.TempDir() + "/no-program"
	if err := os.WriteFile(program, []byte("\x00"), 0o755); err != nil {
		t.Fatal(err)
	}
	term := atTerminal(t, env, `"$pawl" exec a -- `+program+`; echo "ended with $?"; read y; echo "script read $y"`)
	term.awaitText("ended with 126")
	term.typeKeys("one\n")
	term.awaitText("script read one")
	term.v.wait(t)
	free(t, s, "a")
}

func TestCtrlCReachesTheCommandOnce(t *testing.T) {
	t.Parallel()
	_, env := server(t)
	dir := t.TempDir()
	term := atTerminal(t, env, `exec "$pawl" exec a -- sh -c 'trap "echo interrupted" INT; echo up; while [ ! -e `+dir+`/go ]; do sleep 0.01; done; exit 3'`)
	term.awaitText("up\n")
	term.typeKeys("\x03")
	term.awaitText("interrupted\n")
	// A second one would be there by now, or comes before the command ends.
	if err := os.WriteFile(dir+"/go", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	term.v.wait(t).expect(t, 3)
	if n := strings.Count(term.shown(), "interrupted"); n != 1 {
		t.Errorf("interrupted %d times:\n%s", n, term.shown())
	}
}

// The shell sees that the job is suspended, and lets it go on.
func TestCtrlZSuspendsTheJobAndFgResumesIt(t *testing.T) {
	t.Parallel()
	_, env := server(t)
	long := []string{strings.Replace(env[0], "lease=4s", "lease=1m", 1)}
	term := atTerminal(t, long, `set -m
		"$pawl" exec a -- sh -c 'echo up; read x; echo "command read $x"; exit 3'
		echo "the shell is back: $?"; fg; echo "ended with $?"`)
	term.awaitText("up\n")
	term.typeKeys("\x1a")
	term.awaitText("the shell is back: ")
	term.typeKeys("one\n")
	term.awaitText("command read one")
	term.awaitText("ended with 3")
	term.v.wait(t)
}

// A suspended job does not renew its lock. It learns that before anything else.
func TestLockLostWhileSuspendedEndsTheCommand(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	term := atTerminal(t, env, `set -m
		"$pawl" exec a -- sh -c 'trap "echo told; exit 0" TERM; sleep 60 & echo up; wait'
		echo "the shell is back"; read wait; fg; echo "ended with $?"`)
	term.awaitText("up\n")
	term.typeKeys("\x1a")
	term.awaitText("the shell is back")
	eventually(t, "the lease has ended", func() bool { return s.Do("EXISTS", "a") == int64(0) })
	term.typeKeys("\n")
	term.awaitText("told\n")
	term.awaitText("ended with 76")
	term.v.wait(t)
}

// Where no shell could resume it, suspending has no effect.
func TestCtrlZHasNoEffectWithoutAShell(t *testing.T) {
	t.Parallel()
	_, env := server(t)
	term := atTerminal(t, env, `exec "$pawl" exec a -- sh -c 'echo up; read x; echo "command read $x"; exit 3'`)
	term.awaitText("up\n")
	term.typeKeys("\x1a")
	term.typeKeys("one\n")
	term.awaitText("command read one")
	term.v.wait(t).expect(t, 3)
}
