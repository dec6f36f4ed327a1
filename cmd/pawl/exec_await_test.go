package main

import (
	"bufio"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/exit"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/target"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// waitingFor runs exec with --wait until it says what it waits for, then does what makes it
// go on, and expects the command to run.
func waitingFor(t *testing.T, env []string, text string, goOn func(), args ...string) {
	t.Helper()
	v := prepare(t, env, append([]string{"exec", "job", "--wait", "5m"}, append(args, "--", "echo", "ran")...)...)
	r, w := must2(os.Pipe())(t)
	defer r.Close()
	v.cmd.Stderr = w
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	lines, waits := []string{}, 0
	for in := bufio.NewScanner(r); in.Scan(); {
		if lines = append(lines, in.Text()); strings.Contains(in.Text(), "waiting up to 5m0s for ") {
			if waits++; !strings.Contains(in.Text(), text) {
				t.Errorf("%q lacks %q", in.Text(), text)
			}
			goOn()
		}
	}
	v.wait(t).expect(t, 0, "ran")
	if waits != 1 {
		t.Errorf("it said %d times what it waits for: %q", waits, lines)
	}
}

func must2[T, U any](a T, b U, err error) func(t *testing.T) (T, U) {
	return func(t *testing.T) (T, U) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return a, b
	}
}

func TestExecWait_ServerNotUpYet_IsWaitedFor(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.Kill()
	waitingFor(t, []string{target.URLEnv + "=" + s.URL()}, s.Addr()+": dial "+s.Addr()+": connect: connection refused", func() { s.Restart() })
}

// The password of a server may come a moment after it.
func TestExecWait_ServerWithoutItsPassword_IsWaitedFor(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	env := []string{target.URLEnv + "=redis://:late@" + s.Addr()}
	waitingFor(t, env, "without any password configured", func() { s.Do("CONFIG", "SET", "requirepass", "late") })
}

func TestExecWait_PasswordFileIsLate_IsWaitedFor(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Password("new"))
	file := filepath.Join(t.TempDir(), "password")
	for text, before := range map[string]string{"WRONGPASS": "old\n", "is empty": "\n", "no such file": ""} {
		_ = os.Remove(file)
		if before != "" {
			replaceFile(t, file, before)
		}
		waitingFor(t, nil, text, func() { replaceFile(t, file, "new\r\n") }, "--addr", "redis://"+s.Addr(), "--password-file", file)
	}
}

// replaceFile does it at once, as whoever mounts secrets does.
func replaceFile(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// The whole time that --wait allows is used for what may pass, whatever one attempt may take.
func TestExecWait_WhatMayPass_IsTriedToTheEnd(t *testing.T) {
	t.Parallel()
	silent := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { silent.Close() })
	for _, url := range []string{
		"redis://" + silent.Addr().String() + "?dial_timeout=300ms", "redis://not-there.invalid", "redis+cluster://127.0.0.1:1",
		"redis+sentinel://127.0.0.1:1/m", "redis+replicas://127.0.0.1:1,127.0.0.1:2",
	} {
		t.Run(url, func(t *testing.T) {
			t.Parallel()
			// The last attempt says what is there. Of a process that is held up it may not come so far.
			cputime.Steady(t, 50*time.Millisecond, func(t testing.TB) {
				begun := time.Now()
				v := pawl(t, nil, "exec", "job", "--addr", url, "--wait", "2s", "--", "true")
				v.expect(t, exit.Server, "waiting up to 2s for ", "unavailable")
				if d := time.Since(begun); d < 2*time.Second {
					t.Errorf("it gave up after %v", d)
				}
				if listens := strings.Contains(url, silent.Addr().String()); listens == strings.Contains(v.stderr.String(), "start a server there") ||
					listens != strings.Contains(v.stderr.String(), "something accepts connections there") {
					t.Error(v.stderr.String())
				}
			})
		})
	}
}

// What only a human can mend is not waited for.
func TestExecWait_WhatLasts_FailsAtOnce(t *testing.T) {
	t.Parallel()
	locked := redistest.Start(t, redistest.Password("right"))
	secure, plain := redistest.Start(t, redistest.TLS()), redistest.Start(t)
	for text, url := range map[string]string{
		"WRONGPASS":                  "redis://:wrong@" + locked.Addr(),
		"NOAUTH":                     "redis://" + locked.Addr(),
		"unknown authority":          secure.URL(),
		"speaks TLS on this port":    "redis://" + secure.Addr(),
		"does not speak TLS on this": "rediss://" + plain.Addr(),
		"DB index is out of range":   "redis://" + plain.Addr() + "/99",
	} {
		v := pawl(t, []string{target.URLEnv + "=" + url}, "exec", "job", "--wait", "10m", "--", "true") // longer than a test may take
		v.expect(t, exit.Server, text)
		if strings.Contains(v.stderr.String(), "start a server there") {
			t.Error(v.stderr.String())
		}
	}
}

// Where a majority refuses for good, the others are not waited for.
func TestExecWait_NoMajorityIsPossible_FailsAtOnce(t *testing.T) {
	t.Parallel()
	args := []string{"exec", "job", "--wait", "10m", "--quorum", "redis://127.0.0.1:1"}
	for range 2 {
		args = append(args, "--quorum", "redis://"+redistest.Start(t, redistest.Password("right")).Addr())
	}
	pawl(t, []string{target.PasswordEnv + "=wrong"}, append(args, "--", "true")...).expect(t, exit.Server, "0 of 3 servers can be used", "WRONGPASS")
}
