package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/exit"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/target"
	"github.com/pawl-lock/pawl/internal/redistest"
)

func TestPingReportsTheServer(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	pawl(t, env, "ping").expect(t, 0, s.Addr()+" answered in")
	pawl(t, nil, "ping", "--addr", "unix://"+s.Socket()).expect(t, 0, s.Socket()+" answered in")
	// The flag wins over the environment.
	pawl(t, []string{target.URLEnv + "=redis://127.0.0.1:1"}, "ping", "--addr", s.URL()).expect(t, 0)
}

func TestPasswordsComeFromTheEnvironment(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Password("to%p:s@cret/"), redistest.User("alice on >w0nder ~* &* +@all"))
	for _, env := range [][]string{
		{target.URLEnv + "=" + s.URL()},
		{target.URLEnv + "=redis://" + s.Addr(), target.PasswordEnv + "=to%p:s@cret/"},
		{target.URLEnv + "=redis://default@" + s.Addr(), target.PasswordEnv + "=to%p:s@cret/"},
		{target.URLEnv + "=redis://alice@" + s.Addr(), target.PasswordEnv + "=w0nder"},
		// The one in the URL belongs to it.
		{target.URLEnv + "=redis://alice:w0nder@" + s.Addr(), target.PasswordEnv + "=of another server"},
	} {
		pawl(t, env, "ping").expect(t, 0)
	}
	pawl(t, []string{target.PasswordEnv + "=w0nder"}, "ping", "--addr", "redis://alice@"+s.Addr()).expect(t, 0)
}

func TestStatusShowsHolders(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	h := hold(t, s.URL(), "a")
	pawl(t, env, "status", "a").expect(t, 0, "a: locked (exclusive), its lease ends in ", "holder "+h.Owner()+", count 1\n")
	pawl(t, env, "status", "b").expect(t, 0, "b: free\n")
	pawl(t, env, "status", "orders:*").expect(t, 0, "orders:*: free\n", `"pawl ls" takes patterns`)
	s.Do("HSET", "forever", "somebody:1", "2")
	pawl(t, env, "status", "forever").expect(t, 0, "never ends by itself", "holder somebody:1, count 2\n")
}

// A user who may write a key must not control the terminal of a user who looks at it.
func TestStatusQuotesWhatATerminalWouldObey(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	s.Do("HSET", "evil", "a\x1b[2J\nevil: free", "1", "mode", "read\r")
	v := pawl(t, env, "status", "evil")
	v.expect(t, 0, `locked ("read\r")`, `holder "a\x1b[2J\nevil: free", count 1`+"\n")
	if strings.ContainsAny(v.stdout.String(), "\x1b\r") || strings.Count(v.stdout.String(), "\n") != 2 {
		t.Errorf("%q", v.stdout.String())
	}
	s.Do("HSET", "plain", "jürgen's host:1", "1")
	pawl(t, env, "status", "plain").expect(t, 0, "holder jürgen's host:1, count 1\n")
}

func TestStatusSpeaksJSON(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	s.Do("HSET", "forever", "somebody:1", "2")
	s.Do("HSET", "leased", "somebody:1", "1")
	s.Do("PEXPIRE", "leased", "60000")
	for name, want := range map[string]map[string]any{
		"forever": {"name": "forever", "kind": "mutex", "locked": true, "mode": "exclusive", "ttl_ms": nil,
			"holders": []any{map[string]any{"id": "somebody:1", "count": 2.0}}},
		"leased": {"name": "leased", "kind": "mutex", "locked": true, "mode": "exclusive", "ttl_ms": "some",
			"holders": []any{map[string]any{"id": "somebody:1", "count": 1.0}}},
		"free": {"name": "free", "kind": "", "locked": false, "mode": "", "ttl_ms": 0.0, "holders": []any{}},
	} {
		v := pawl(t, env, "status", name, "--format", "json")
		v.expect(t, 0)
		var got map[string]any
		if err := json.Unmarshal(v.stdout.Bytes(), &got); err != nil {
			t.Fatalf("%v:\n%s", err, v.stdout.String())
		}
		if ttl, ok := got["ttl_ms"].(float64); ok && ttl > 30000 && ttl <= 60000 {
			got["ttl_ms"] = "some"
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}

// For scripts: the exit code is the answer, and one of its own if there is none.
func TestQuietStatusAnswersWithItsExitCode(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	s.Do("HSET", "held", "somebody:1", "1")
	s.Do("SET", "foreign", "of another library")
	for _, c := range []struct {
		name string
		code int
	}{{"held", 0}, {"free", 1}} {
		for _, flag := range []string{"--quiet", "-q"} {
			v := pawl(t, env, "status", flag, c.name)
			if v.expect(t, c.code); v.stdout.Len()+v.stderr.Len() > 0 {
				t.Errorf("said %q %q", v.stdout.String(), v.stderr.String())
			}
		}
	}
	pawl(t, env, "status", "--quiet", "foreign").expect(t, exit.Server, "another type")
	pawl(t, nil, "status", "--quiet", "a", "--addr", "redis://127.0.0.1:1?dial_timeout=5s").expect(t, exit.Server, "refused")
	pawl(t, env, "status", "--quiet", "held", "--format", "json").expect(t, exit.Usage, "cannot be combined")
}

// A script that gets no answer must not take that for one.
func TestAnswerThatCannotBeWrittenIsAnError(t *testing.T) {
	t.Parallel()
	_, env := server(t)
	for _, args := range [][]string{{"status", "a"}, {"status", "a", "--format", "json"}, {"ping"}, {"version"}} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Skipf("NOT TESTED HERE: no file that is always full: %v", err)
		}
		v := prepare(t, env, args...)
		v.cmd.Stdout = full
		err = v.cmd.Start()
		full.Close()
		if err != nil {
			t.Fatal(err)
		}
		v.wait(t).expect(t, exit.Failed, "no space left")
	}
}

func TestUnlockRemovesOnlyWhatItShould(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	h := hold(t, s.URL(), "a")
	pawl(t, env, "unlock", "a").expect(t, 64, "--force")
	pawl(t, env, "unlock", "--force", "a", "--if-holder", "somebody:1").expect(t, 1, "not held by somebody:1")
	if s.Do("HLEN", "a") != int64(1) {
		t.Fatal("the lock was removed anyway")
	}
	pawl(t, env, "unlock", "--force", "a", "--if-holder", h.Owner()).expect(t, 0, "a: removed")
	pawl(t, env, "unlock", "--force", "a").expect(t, 1, "a is free")
	hold(t, s.URL(), "a")
	pawl(t, env, "unlock", "--force", "a").expect(t, 0)
}

// serveOn starts pawl serve and returns its first line's URL.
func serveOn(t *testing.T) (*invocation, string) {
	t.Helper()
	v := prepare(t, nil, "serve", "--listen", "127.0.0.1:0")
	v.cmd.Stdout = nil
	out, err := v.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }() // ends with the process
	url, _, _ := strings.Cut(strings.TrimPrefix(line, "listening on "), ";")
	return v, url
}

func TestServeServesUntilInterrupted(t *testing.T) {
	t.Parallel()
	v, url := serveOn(t)
	pawl(t, nil, "exec", "a", "--addr", url, "--", "go", "version").expect(t, 0, "go version")
	taken := strings.TrimPrefix(url, "redis://")
	pawl(t, nil, "serve", "--listen", taken).expect(t, 69, "choose another address")
	if runtime.GOOS == "windows" {
		return // no signals
	}
	if err := v.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	v.wait(t).expect(t, 0)
	if conn, err := net.Dial("tcp", taken); err == nil {
		conn.Close()
		t.Error("somebody still listens")
	}
}

// What listens at an address may be any kind of server.
func TestServersThatAreNoneAreReported(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"speaks another protocol": "HTTP/1.1 400 Bad Request\r\n\r\n",
		"hangs up":                "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			served := make(chan struct{})
			go func() {
				defer close(served)
				for {
					conn, err := l.Accept()
					if err != nil {
						return // closed below
					}
					_, _ = io.WriteString(conn, answer)
					conn.Close()
				}
			}()
			t.Cleanup(func() { l.Close(); <-served })
			url := "redis://" + l.Addr().String() + "?dial_timeout=2s"
			for _, args := range [][]string{{"ping"}, {"exec", "a", "--", "go", "version"}} {
				v := pawl(t, []string{target.URLEnv + "=" + url}, args...)
				if v.expect(t, 69, l.Addr().String()); strings.Contains(v.stdout.String(), "go1") {
					t.Error("the command ran without a lock")
				}
			}
		})
	}
}

// The one attempt that fits into the time says why it failed.
func TestSilentServerIsSuspectedNotToSpeakTLS(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts in its backlog, and is silent
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	eventually(t, "it is suspected", func() bool { // on a busy machine an attempt may not even come so far
		v := pawl(t, nil, "ping", "--addr", "rediss://"+l.Addr().String()+"?dial_timeout=100ms")
		v.expect(t, exit.Server)
		return strings.Contains(v.stderr.String(), "check that the server speaks TLS")
	})
}

func TestNamesThatAreTooLongAreRefused(t *testing.T) {
	t.Parallel()
	_, env := server(t)
	for _, args := range [][]string{{"status"}, {"unlock", "--force"}} {
		v := pawl(t, env, append(args, strings.Repeat("n", 100<<10))...)
		if v.expect(t, 64, "name"); v.stderr.Len() > 1000 {
			t.Errorf("%d bytes of complaint", v.stderr.Len())
		}
	}
}

// Nor do several that are silent keep it for longer than it may wait.
func TestExecsWaitBoundsTheSearchForAPrimary(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts in its backlog, and is silent
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	addr := "redis+replicas://" + l.Addr().String() + "?dial_timeout=1s"
	pawl(t, nil, "exec", "a", "--wait", "1s", "--addr", addr, "--", "true").expect(t, exit.Server, "tried for 1s")
}
