//go:build unix

package main

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/exit"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// quorumOf starts servers and returns the flags that name them.
func quorumOf(t *testing.T, n int) (servers []*redistest.Server, flags []string) {
	t.Helper()
	for range n {
		s, _ := server(t)
		servers = append(servers, s)
		flags = append(flags, "--quorum", s.URL()+"?lease=4s")
	}
	return servers, flags
}

func TestExecHoldsTheLockOnAMajority(t *testing.T) {
	t.Parallel()
	servers, quorum := quorumOf(t, 3)
	dir := t.TempDir()
	args := append([]string{"exec", "a"}, quorum...)
	v := start(t, nil, append(args, "--", "sh", "-c", `echo up >`+dir+`/up; exec sleep 100`)...)
	started(t, dir+"/up")
	for i, s := range servers {
		eventually(t, "each server has it", func() bool { return s.Do("HLEN", "a") == int64(1) })
		if i == 2 {
			if err := s.Process.Kill(); err != nil { // the others are a majority
				t.Fatal(err)
			}
		}
	}
	pawl(t, nil, append(args, "--wait", "5s", "--", "true")...).expect(t, 75, `lock "a" not acquired`, "going on without")
	if err := v.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	v.wait(t).expect(t, 128+15)
	free(t, servers[0], "a")
	free(t, servers[1], "a")
}

// One of three is down, or hangs: the command runs, and pawl says what is missing.
func TestExecGoesOnWithoutAMinority(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(s *redistest.Server) error{
		"down": func(s *redistest.Server) error { return s.Process.Kill() },
		"hung": func(s *redistest.Server) error { return s.Process.Stop() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers, quorum := quorumOf(t, 3)
			if err := away(servers[1]); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = servers[1].Process.Cont() })
			args := append([]string{"exec", "a"}, quorum...)
			pawl(t, nil, append(args, "--", "echo", "ran")...).expect(t, 0, "ran\n", "going on without "+servers[1].Addr())
			free(t, servers[0], "a")
			free(t, servers[2], "a")
		})
	}
}

// Sentinels often watch several primaries: the name says which of them is missing.
func TestExecNamesThePrimaryThatIsMissing(t *testing.T) {
	t.Parallel()
	servers, quorum := quorumOf(t, 3)
	if err := servers[2].Process.Stop(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = servers[2].Process.Cont() })
	quorum[5] = "redis+sentinel://" + servers[2].Addr() + "/orders"
	args := append([]string{"exec", "a"}, quorum...)
	pawl(t, nil, append(args, "--", "true")...).expect(t, 0, "going on without orders@"+servers[2].Addr()+": no answer yet")
}

// With a majority down nothing runs, and the error names the servers.
func TestExecWithoutAMajorityDoesNotRun(t *testing.T) {
	t.Parallel()
	servers, quorum := quorumOf(t, 3)
	for _, s := range servers[1:] {
		if err := s.Process.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	args := append([]string{"exec", "a"}, quorum...)
	v := pawl(t, nil, append(args, "--", "echo", "ran")...)
	if v.expect(t, exit.Server, "pawl: 1 of 3 servers can be used, 2 are needed: server is unavailable", servers[1].Addr(), servers[2].Addr(), "refused"); v.stdout.Len() > 0 || strings.Contains(v.stderr.String(), "engine:") {
		t.Error("the command ran")
	}
	free(t, servers[0], "a")
}

// When a majority is lost while the command runs, it ends.
func TestLossOfTheMajorityEndsTheCommand(t *testing.T) {
	t.Parallel()
	servers, quorum := quorumOf(t, 3)
	dir := t.TempDir()
	args := append([]string{"exec", "a"}, quorum...)
	v := start(t, nil, append(args, "--", "sh", "-c", `echo up >`+dir+`/up; exec sleep 100`)...)
	started(t, dir+"/up")
	for _, s := range servers[:2] {
		if err := s.Process.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	v.wait(t).expect(t, 76, `lock "a"`, "SIGTERM")
}

// It was held to the end: by the two that the release did not find it gone at.
func TestReleaseWithoutAMajorityIsNoLoss(t *testing.T) {
	t.Parallel()
	servers, quorum := quorumOf(t, 3)
	for i := range quorum {
		quorum[i] = strings.TrimSuffix(quorum[i], "?lease=4s") // it is not renewed meanwhile
	}
	dir := t.TempDir()
	args := append([]string{"exec", "a"}, quorum...)
	v := start(t, nil, append(args, "--", "sh", "-c", `echo up >`+dir+`/up; while [ -e `+dir+`/up ]; do sleep 0.01; done; exit 7`)...)
	started(t, dir+"/up")
	for _, s := range servers {
		eventually(t, "each server has it", func() bool { return s.Do("HLEN", "a") == int64(1) })
	}
	servers[0].Do("DEL", "a")
	if err := servers[1].Process.Stop(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = servers[1].Process.Cont() })
	if err := os.Remove(dir + "/up"); err != nil {
		t.Fatal(err)
	}
	v.wait(t).expect(t, 7, "the lock was not released and ends with its lease", "the server does not have it any more")
}

func TestQuorumThatMakesNoSenseIsWrongUsage(t *testing.T) {
	t.Parallel()
	for text, args := range map[string][]string{
		"one --quorum is no majority":            {"exec", "a", "--quorum", "redis://127.0.0.1:1", "--", "true"},
		"--addr and --quorum cannot be combined": {"exec", "a", "--addr", "redis://127.0.0.1:1", "--quorum", "redis://127.0.0.1:1", "--quorum", "redis://127.0.0.1:2", "--", "true"},
		"--quorum goes with one name":            {"exec", "a", "--and", "b", "--quorum", "redis://127.0.0.1:1", "--quorum", "redis://127.0.0.1:2", "--", "true"},
		"--min-hold and --quorum":                {"exec", "a", "--min-hold", "1s", "--quorum", "redis://127.0.0.1:1", "--quorum", "redis://127.0.0.1:2", "--", "true"},
		"a password on the command line":         {"exec", "a", "--quorum", "redis://:s@127.0.0.1:1", "--quorum", "redis://127.0.0.1:2", "--", "true"},
		"--quorum is empty":                      {"exec", "a", "--quorum", "", "--quorum", "redis://127.0.0.1:2", "--", "true"},
	} {
		pawl(t, nil, args...).expect(t, exit.Usage, text)
	}
	s, _ := server(t)
	pawl(t, nil, "exec", "a", "--quorum", s.URL(), "--quorum", s.URL(), "--", "true").expect(t, exit.Usage, "twice")
}
