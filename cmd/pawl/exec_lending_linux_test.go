package main

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

// ssh and sudo ask for passwords at the terminal, whatever their standard input is.
func TestExecLendsTheTerminalToACommandWhoseInputIsAPipe(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	term := atTerminal(t, env, `echo data | "$pawl" exec a -- sh -c 'read d; echo up; read x </dev/tty; echo "command read $d, $x"'
		read y; echo "script read $y"`)
	term.awaitText("up\n")
	term.typeKeys("one\n")
	term.awaitText("command read data, one")
	term.typeKeys("two\n")
	term.awaitText("script read two")
	term.v.wait(t)
	free(t, s, "a")
}

func TestPagerBehindExecHasTheTerminal(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	term := atTerminal(t, env, `set -m
		"$pawl" exec a -- sh -c 'echo up >&2; exec sleep 60' | sh -c 'read x </dev/tty; echo "pager read $x"; read x'`)
	term.awaitText("up\n")
	term.typeKeys("one\n")
	term.awaitText("pager read one")
	term.typeKeys("\x03")
	term.v.wait(t).expect(t, 130)
	free(t, s, "a")
}

// First the command asks at the terminal, then the pager, and the command still has it.
func TestTerminalGoesToThePartOfThePipelineThatWantsIt(t *testing.T) {
	t.Parallel()
	_, env := server(t)
	dir := t.TempDir()
	term := atTerminal(t, env, `set -m
		"$pawl" exec a -- sh -c 'echo up >&2; read x </dev/tty; echo "command read $x" >&2; exec sleep 60' |
			sh -c 'while [ ! -e `+dir+`/go ]; do sleep 0.01; done; read x </dev/tty; echo "pager read $x"; read x'`)
	term.awaitText("up\n")
	term.typeKeys("one\n")
	term.awaitText("command read one")
	if err := os.WriteFile(dir+"/go", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	term.typeKeys("two\n")
	term.awaitText("pager read two")
	term.typeKeys("\x03")
	term.v.wait(t).expect(t, 130)
}

// The terminal sent the Ctrl-Z to the command alone, which had it.
func TestCtrlZAtACommandThatHasTheTerminalSuspendsTheScript(t *testing.T) {
	t.Parallel()
	_, env := server(t)
	long := strings.Replace(env[0], "lease=4s", "lease=1m", 1)
	const script = `$run sh -c "echo up; read x; echo command read \$x; read x; echo command read \$x; exit 3"; echo "the script goes on with $?"`
	for name, run := range map[string]string{"pawl": "$pawl exec a --", "plain": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			term := atTerminal(t, []string{long, "script=" + strings.Replace(script, "$run", run, 1)}, `set -m
				sh -c "$script"; echo "the shell is back"; fg; read x; echo "shell read $x"`)
			term.awaitText("up\n")
			term.typeKeys("one\n")
			term.awaitText("command read one")
			term.typeKeys("\x1a")
			term.awaitText("the shell is back")
			term.typeKeys("two\n")
			term.awaitText("command read two")
			term.awaitText("the script goes on with 3")
			term.typeKeys("three\n")
			term.awaitText("shell read three")
			term.v.wait(t)
		})
	}
}

// The terminal sent the Ctrl-C to the command alone, which had it.
func TestCtrlCAtACommandThatHasTheTerminalEndsTheScript(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"sh", "bash"} {
		for name, run := range map[string]string{"pawl": `"$pawl" exec a -- `, "plain": ""} {
			t.Run(shell+" "+name, func(t *testing.T) {
				t.Parallel()
				_, env := server(t)
				term := onTerminal(t, env, "/bin/"+shell, "-c", run+`sh -c 'echo up; read x; echo "command read $x"; exec sleep 60'; echo "the script goes on"`)
				term.awaitText("up\n")
				term.typeKeys("one\n")
				term.awaitText("command read one")
				term.typeKeys("\x03")
				if term.v.wait(t); strings.Contains(term.shown(), "goes on") || term.v.died() != syscall.SIGINT {
					t.Errorf("died of %v:\n%s", term.v.died(), term.shown())
				}
			})
		}
	}
}

// A shell with jobs of its own gives them the terminal, and takes it again.
func TestCommandMayBeAnInteractiveShell(t *testing.T) {
	t.Parallel()
	_, env := server(t)
	term := atTerminal(t, append(env, "PS1=ready>"), `"$pawl" exec a -- bash --norc -i; echo "ended with $?"; read y; echo "script read $y"`)
	term.awaitText("ready>")
	term.typeKeys("echo in-$((40+2))\n")
	term.awaitText("in-42")
	term.typeKeys("sh -c 'echo at $((6*7)); exec sleep 60'\n")
	term.awaitText("at 42")
	term.typeKeys("\x03")
	term.typeKeys("echo code-$?; exit 3\n")
	term.awaitText("code-130")
	term.awaitText("ended with 3")
	term.typeKeys("one\n")
	term.awaitText("script read one")
	term.v.wait(t)
}

// Killed, it takes nothing back from its job: pawl does.
func TestTerminalComesBackFromAKilledShell(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	dir := t.TempDir()
	term := atTerminal(t, append(env, "PS1=ready>"), `"$pawl" exec a --grace 200ms -- bash --norc -i; echo "ended with $?"; read y; echo "script read $y"`)
	term.awaitText("ready>")
	term.typeKeys("sh -c 'echo $$ >" + dir + "/pid; exec sleep 60'\n")
	started(t, dir+"/pid")
	s.Do("DEL", "a")
	term.awaitText("ended with 76")
	term.typeKeys("one\n")
	term.awaitText("script read one")
	term.v.wait(t)
}

// A command that dies in raw mode leaves a terminal that shows nothing. Shells mend that
// if they see a command die of a signal; of pawl they see an exit code.
func TestExecTidiesTheTerminalOfAKilledCommand(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		then string
		lost bool
		code string
	}{
		"by itself":    {then: "kill -9 $$", code: "137"},
		"without lock": {then: "trap '' TERM; exec sleep 60", lost: true, code: "76"},
		"to be kept":   {then: "exit 3", code: "3"}, // as after stty
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, env := server(t)
			term := atTerminal(t, append(env, "then="+c.then), `"$pawl" exec a --grace 100ms -- sh -c 'stty -echo; echo up; eval "$then"'
				code=$?; stty -a | tr ' ' '\n' | grep '^-*echo$'; echo "ended with $code"`)
			term.awaitText("up\n")
			if c.lost {
				s.Do("DEL", "a")
			}
			term.awaitText("ended with " + c.code)
			if kept := strings.Contains(term.shown(), "-echo\n"); kept != (c.code == "3") {
				t.Errorf("the terminal shows what is typed: %v\n%s", !kept, term.shown())
			}
			term.v.wait(t)
		})
	}
}

// A pager sets the terminal's modes too, and sets them back when it ends.
func TestTerminalOfAPipelineHasTheModesOfWhoHasIt(t *testing.T) {
	t.Parallel()
	_, env := server(t)
	dir := t.TempDir()
	term := atTerminal(t, append(env, "D="+dir), `set -m
		await() { while [ ! -e "$D/$1" ]; do sleep 0.01; done; }
		"$pawl" exec a -- sh -c 'while [ ! -e "$D/set" ]; do sleep 0.01; done
			read x </dev/tty; stty echo </dev/tty; echo >"$D/read"
			while [ ! -e "$D/reset" ]; do sleep 0.01; done
			read x </dev/tty; kill -9 $$' | {
			stty -echo </dev/tty; echo >"$D/set"; await read
			read x </dev/tty; stty -a </dev/tty | tr ' ' '\n' | grep '^-*echo$' >"$D/pager"
			stty echo </dev/tty; echo >"$D/reset"; await go; }
		stty -a | tr ' ' '\n' | grep '^-*echo$' >"$D/after"; echo over`)
	started(t, dir+"/set")
	term.typeKeys("one\n")
	started(t, dir+"/read")
	term.typeKeys("two\n")
	started(t, dir+"/reset")
	term.typeKeys("three\n")
	if err := os.WriteFile(dir+"/go", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	term.awaitText("over")
	for file, want := range map[string]string{"pager": "-echo\n", "after": "echo\n"} {
		if got, _ := os.ReadFile(dir + "/" + file); string(got) != want {
			t.Errorf("%s: %q, want %q", file, got, want)
		}
	}
	term.v.wait(t)
}

// There is no shell that could ever give it the terminal, so it would hang for ever,
// with the lock.
func TestCommandThatCanNeverHaveTheTerminalIsHungUp(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	dir := t.TempDir()
	term := onTerminal(t, env, "/bin/bash", "-c", `set -m
		( "$pawl" exec a -- sh -c 'echo up >`+dir+`/up; read x </dev/tty; echo "read $x"' & )
		read y; echo "script read $y"`)
	started(t, dir+"/up")
	term.awaitText("needs the terminal")
	eventually(t, "the lock is free", func() bool { return s.Do("EXISTS", "a") == int64(0) })
	term.typeKeys("one\n")
	term.awaitText("script read one")
	if term.v.wait(t); strings.Contains(term.shown(), "\nread") {
		t.Errorf("the command read from another's terminal:\n%s", term.shown())
	}
}

// With "stty tostop" a process that writes from the background is stopped. pawl must not be: the
// command would go on without anybody to renew its lock.
func TestWarningFromTheBackgroundDoesNotStopExec(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	dir := t.TempDir()
	term := onTerminal(t, env, "/bin/bash", "-c", `set -m; stty tostop
		"$pawl" exec a --on-lost ignore -- sh -c 'echo up >`+dir+`/up; while [ ! -e `+dir+`/go ]; do sleep 0.01; done; exit 3' &
		wait; code=$?; echo "ended with $code"`)
	started(t, dir+"/up")
	s.Do("DEL", "a")
	term.awaitText("the command goes on")
	if err := os.WriteFile(dir+"/go", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	term.awaitText("ended with")
	term.v.wait(t)
}

func TestExecSaysOnATerminalWhoHoldsTheLock(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	h := hold(t, s.URL(), "a b")
	term := atTerminal(t, env, `"$pawl" exec "a b" -- echo ran; echo "ended with $?"`)
	term.awaitText(`pawl: waiting for lock "a b", held by ` + h.Owner() + `, lease ends in `)
	if err := h.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	term.awaitText("ended with 0")
	term.v.wait(t)
	// If the lock is free, nothing is said.
	term = atTerminal(t, env, `"$pawl" exec b -- echo ran`)
	if term.v.wait(t); strings.Contains(term.shown(), "waiting") {
		t.Error(term.shown())
	}
	// Nor does a log.
	s.Do("HSET", "c", "somebody:1", "1")
	var v *invocation
	eventually(t, "it has connected in time", func() bool {
		v = pawl(t, env, "exec", "c", "--wait", "500ms", "--conflict-exit-code", "0", "--", "true")
		return v.code == 0
	})
	if v.stderr.Len() > 0 {
		t.Errorf("said %q", v.stderr.String())
	}
}

func TestExecSaysOnATerminalThatItWaitsForAPermit(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	sem := openEngine(t, s.URL()).PermitSemaphore("a")
	if err := sem.SetPermits(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	h, err := sem.TryAcquire(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	term := atTerminal(t, env, `"$pawl" exec a --kind semaphore -- echo ran; echo "ended with $?"`)
	term.awaitText(`pawl: waiting for a permit of "a": 2 taken`)
	if err := h.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	term.awaitText("ended with 0")
	term.v.wait(t)
}
