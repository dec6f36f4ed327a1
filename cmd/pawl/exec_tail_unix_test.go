//go:build unix

package main

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/exit"
	"github.com/pawl-lock/pawl/internal/cputime"
)

// quick checks that something that used to take the server's time did not.
func quick(t *testing.T, began cputime.Mark, limit time.Duration, what string) {
	t.Helper()
	if took := began.Elapsed(); took > limit {
		t.Errorf("%s took %v, want at most %v", what, took, limit)
	}
}

func TestExecOnAServerThatDoesNotAnswerWaitsNoLongerThanItMay(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	s.Stop()
	began := cputime.Now()
	pawl(t, env, "exec", "a", "--wait", "1s", "--", "true").expect(t, exit.Server, s.Addr())
	quick(t, began, 3500*time.Millisecond, "--wait 1s")
}

// The URL's dial_timeout is for a connection that nothing else bounds. 5s is what that takes
// if it says nothing.
func TestExecConnectsForNoLongerThanItMayWait(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	s.Stop()
	began := cputime.Now()
	pawl(t, []string{env[0] + "&dial_timeout=20s"}, "exec", "a", "--wait", "5s", "--", "true").expect(t, exit.Server, s.Addr())
	quick(t, began, 10*time.Second, "--wait 5s")
}

func TestBenchTriesASilentServerForNoLongerThanOthersDo(t *testing.T) {
	t.Parallel()
	s, _ := server(t)
	s.Stop()
	began := cputime.Now()
	pawl(t, nil, "bench", "single", "--addr", s.URL()).expect(t, exit.Server, "does not answer")
	quick(t, began, 10*time.Second, "bench")
}

func TestExecWhoseServerStopsAnsweringWaitsNoLongerThanItMay(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	s.Do("HSET", "a", "somebody:1", "1")
	began := cputime.Now()
	v := start(t, env, "exec", "a", "--wait", "1500ms", "--", "true")
	someoneWaits(t, s)
	s.Stop()
	if v.wait(t); v.code == 0 {
		t.Error("the command ran")
	}
	quick(t, began, 4*time.Second, "--wait 1500ms")
}

func TestExecHeedsASignalAtOnceWhileADeadServerKeepsItWaiting(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	s.Do("HSET", "a", "somebody:1", "1")
	s.Do("PEXPIRE", "a", "4000") // time enough to start a process, and to see that it waits
	// By then it tries again, for the lease is over, and has no answer.
	over := time.Now().Add(4200 * time.Millisecond)
	v := start(t, env, "exec", "a", "--", "true")
	someoneWaits(t, s)
	s.Stop()
	for time.Now().Before(over) {
		time.Sleep(50 * time.Millisecond) // the lease itself must pass
	}
	began := cputime.Now()
	if err := v.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	v.wait(t).expect(t, 128+15, "ended by signal")
	quick(t, began, 3*time.Second, "ending")
}

// The server has granted it by then, and says so when the replicas have had their time, which
// may be longer than a release takes. timeout(1) sends its signal twice.
func TestExecThatGivesUpGivesBackWhatWaitsForReplicas(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	env = []string{strings.Replace(env[0], "lease=4s", "lease=1m&replicas=2&ack_timeout=1500ms", 1)}
	pawl(t, env, "exec", "a", "--wait", "100ms", "--", "true").expect(t, exit.Server, "not acquired")
	free(t, s, "a")
	v := start(t, env, "exec", "b", "--", "true")
	eventually(t, "it is granted", func() bool { return s.Do("EXISTS", "b") == int64(1) })
	for range 2 {
		if err := v.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond) // else the kernel may make one of them
	}
	v.wait(t).expect(t, 128+15, "ended by signal")
	free(t, s, "b")
}

// Ctrl-C while pawl waits for a dead server, or for the reader of its last line, does not
// change the exit code: it is the command's.
func TestSignalsAfterTheCommandsEndKeepItsCode(t *testing.T) {
	t.Parallel()
	for name, blocked := range map[string]bool{"stderr read": false, "stderr blocked": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, env := server(t)
			long := []string{strings.Replace(env[0], "lease=4s", "lease=1m", 1)}
			dir := t.TempDir()
			v := prepare(t, long, "exec", "a", "--", "sh", "-c",
				`trap '' INT; echo up >`+dir+`/up; while [ ! -e `+dir+`/go ]; do sleep 0.01; done; echo over >`+dir+`/over; exit 4`)
			if blocked {
				reader, writer, err := os.Pipe()
				if err != nil {
					t.Fatal(err)
				}
				defer reader.Close()
				defer writer.Close()
				fill(t, writer)
				v.cmd.Stderr = writer
			}
			if err := v.cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = v.cmd.Process.Kill() })
			started(t, dir+"/up")
			s.Stop()
			if err := os.WriteFile(dir+"/go", nil, 0o644); err != nil {
				t.Fatal(err)
			}
			started(t, dir+"/over")
			ended, impatient := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(impatient)
				for {
					select {
					case <-ended:
						return
					case <-time.After(20 * time.Millisecond):
						_ = v.cmd.Process.Signal(os.Interrupt)
					}
				}
			}()
			v.wait(t)
			close(ended)
			<-impatient
			if v.expect(t, 4); !blocked {
				v.expect(t, 4, "ends with its lease")
			}
		})
	}
}

// fill fills a pipe, so that the next write to it blocks.
func fill(t *testing.T, pipe *os.File) {
	t.Helper()
	if err := pipe.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for size := 4096; size > 0; size /= 16 {
		for err := error(nil); err == nil; {
			_, err = pipe.Write(make([]byte, size))
		}
	}
}

// A script that runs pawl ends with it, if that is how the command ended.
func TestExecDiesOfTheInterruptThatEndedItsCommand(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT} {
		number := map[syscall.Signal]string{syscall.SIGINT: "INT", syscall.SIGQUIT: "QUIT"}[sig]
		v := pawl(t, env, "exec", "a", "--", "sh", "-c", "ulimit -c 0; kill -"+number+" $$")
		if v.died() != sig {
			t.Errorf("%v: exit code %d, died of %v", sig, v.code, v.died())
		}
		if v.stderr.Len() > 0 {
			t.Errorf("%v: said %q", sig, v.stderr.String())
		}
	}
	// An exit code is one.
	v := pawl(t, env, "exec", "a", "--", "sh", "-c", "exit 130")
	if v.expect(t, 130); v.died() != 0 {
		t.Errorf("died of %v", v.died())
	}
	free(t, s, "a")
	hold(t, s.URL(), "a")
	v = start(t, env, "exec", "a", "--", "true")
	someoneWaits(t, s)
	if err := v.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if v.wait(t).expect(t, 130, "ended by signal"); v.died() != syscall.SIGINT {
		t.Errorf("waiting, it died of %v", v.died())
	}
}
