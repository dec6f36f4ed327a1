package redistest_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pawl-lock/pawl/internal/redistest"
)

// orphanEnv makes this test binary start a server, print its pid and hang.
const orphanEnv = "REDISTEST_ORPHAN"

func TestMain(m *testing.M) {
	if os.Getenv(orphanEnv) != "" {
		p, err := redistest.StartProcess(context.Background(), redistest.Config{})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(p.PID(), p.Dir())
		select {}
	}
	goleak.VerifyTestMain(m)
}

func TestStart_Returns_BothListenersAnswer(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for _, l := range [][2]string{{"tcp", s.Addr()}, {"unix", s.Socket()}} {
		if got := ping(t, l[0], l[1]); got != "+PONG" {
			t.Errorf("%s: %q", l[0], got)
		}
	}
}

func TestStart_Servers_HaveTheirOwnPortAndData(t *testing.T) {
	t.Parallel()
	const n = 8
	servers := make([]*redistest.Server, n)
	for i := range servers {
		servers[i] = redistest.Start(t)
		servers[i].Do("SET", "who", fmt.Sprint(i))
	}
	for i, s := range servers {
		if got := s.Do("GET", "who"); got != fmt.Sprint(i) {
			t.Errorf("server %d says it is %v", i, got)
		}
	}
}

func TestServer_Killed_NobodyListens(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.Kill()
	if conn, err := net.Dial("tcp", s.Addr()); err == nil {
		conn.Close()
		t.Fatal("something still accepts connections on the port")
	}
	s.Kill() // once more does no harm
}

func TestServer_Restart_IsEmptyOnTheSamePort(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	addr, pid := s.Addr(), s.PID()
	s.Do("SET", "k", "v")
	s.Kill()
	s.Restart()
	if s.Addr() != addr || s.PID() == pid {
		t.Fatalf("was %s pid %d, is %s pid %d", addr, pid, s.Addr(), s.PID())
	}
	if got := s.Do("GET", "k"); got != nil {
		t.Fatalf("k is %v", got)
	}
	s.Restart() // a running one is killed first
	if got := ping(t, "tcp", addr); got != "+PONG" {
		t.Fatal(got)
	}
}

// A client that dials a dead server in a loop must not end up connected to itself
// and so take the server's port.
func TestServer_RestartWhileClientsDial_Works(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.Kill()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if conn, err := net.Dial("tcp", s.Addr()); err == nil {
					conn.Close()
				}
			}
		})
	}
	s.Restart()
	cancel()
	wg.Wait()
}

func TestServer_Stopped_IsSilentUntilContinued(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	conn, err := net.Dial("unix", s.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r := bufio.NewReader(conn)
	for range 20 {
		s.Stop()
		fmt.Fprint(conn, "PING\r\n")
		conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		if line, err := r.ReadString('\n'); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("a stopped server said %q, %v", line, err)
		}
		s.Cont()
		conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		if line, err := r.ReadString('\n'); err != nil || line != "+PONG\r\n" {
			t.Fatalf("a continued server said %q, %v", line, err)
		}
	}
}

func TestServer_Stopped_CanBeKilled(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.Stop()
	s.Kill()
	if err := s.Process.Stop(); err == nil {
		t.Fatal("a dead server was stopped")
	}
}

func TestServer_Do_DecodesEveryKindOfReply(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for _, c := range []struct {
		want  any
		words []string
	}{
		{"OK", []string{"SET", "k", "v\r\n\x00"}},
		{"v\r\n\x00", []string{"GET", "k"}},
		{"", []string{"ECHO", ""}},
		{nil, []string{"GET", "absent"}},
		{int64(-7), []string{"DECRBY", "n", "7"}},
		{[]any{}, []string{"KEYS", "absent*"}},
		{redistest.ReplyError("WRONGTYPE Operation against a key holding the wrong kind of value"), []string{"HGET", "k", "f"}},
		{
			[]any{int64(1), []any{"two", redistest.ReplyError("ERR THREE")}, nil},
			[]string{"EVAL", "return {1, {'two', redis.error_reply('ERR THREE')}, false}", "0"},
		},
	} {
		if got := s.Do(c.words...); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q: got %#v, want %#v", c.words, got, c.want)
		}
	}
}

func TestServer_Password_IsRequiredAndInTheURL(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Password(`p@ss "w/rd`))
	if got := ping(t, "tcp", s.Addr()); !strings.HasPrefix(got, "-NOAUTH") {
		t.Errorf("without the password: %q", got)
	}
	if want := `redis://:p%40ss%20%22w%2Frd@` + s.Addr(); s.URL() != want {
		t.Errorf("URL %s, want %s", s.URL(), want)
	}
	if got := s.Do("PING"); got != "PONG" {
		t.Errorf("admin: %v", got)
	}
}

func TestServer_TLS_IsTrustedByItsOwnConfigOnly(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.TLS())
	conn, err := tls.Dial("tcp", s.Addr(), s.TLSConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := pingOn(t, conn); got != "+PONG" {
		t.Error(got)
	}
	if conn, err := tls.Dial("tcp", s.Addr(), nil); err == nil {
		conn.Close()
		t.Error("trusted by everybody")
	}
	if want := "rediss://" + s.Addr(); s.URL() != want {
		t.Errorf("URL %s, want %s", s.URL(), want)
	}
	s.Restart()
	if got := s.Do("PING"); got != "PONG" {
		t.Errorf("admin after a restart: %v", got)
	}
	if plain := redistest.Start(t); plain.TLSConfig() != nil {
		t.Error("a plain server has a TLS configuration")
	}
}

func TestServer_Users_LeaveTheAdminClientWorking(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.User("default off"), redistest.User("alice on >secret ~a:* +get"))
	if got := ping(t, "tcp", s.Addr()); !strings.HasPrefix(got, "-NOAUTH") {
		t.Errorf("default user: %q", got)
	}
	list := fmt.Sprint(s.Do("ACL", "LIST"))
	if _, alice, found := strings.Cut(list, "user alice on "); !found || !strings.Contains(alice, " ~a:* ") || !strings.Contains(alice, " -@all +get") {
		t.Errorf("alice has other rights: %s", list)
	}
}

func TestServer_Lines_ReachTheConfig(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Line("databases 3", "maxclients 77"))
	if got := s.Do("CONFIG", "GET", "maxclients"); !reflect.DeepEqual(got, []any{"maxclients", "77"}) {
		t.Fatal(got)
	}
}

func TestServer_CommandStats_CountCalls(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	before := s.CommandStats()
	for range 3 {
		s.Do("EVAL", "return redis.call('GET', KEYS[1])", "1", "k")
	}
	s.Do("CLIENT", "ID")
	after := s.CommandStats()
	id := "client"
	if s.Can(redistest.Subcommands) {
		id = "client|id"
	}
	for name, want := range map[string]int64{"eval": 3, "get": 3, id: 1} {
		if got := after[name] - before[name]; got != want {
			t.Errorf("%s: %d calls, want %d", name, got, want)
		}
	}
}

func TestStart_BadConfig_IsReportedWithTheServersWords(t *testing.T) {
	t.Parallel()
	_, err := redistest.StartProcess(t.Context(), redistest.Config{Lines: []string{"no-such-directive 1"}})
	if err == nil || !strings.Contains(err.Error(), "no-such-directive") {
		t.Fatal(err)
	}
}

func TestStart_ContextEnds_GivesUp(t *testing.T) {
	t.Parallel()
	// A "server" that never listens.
	silent := filepath.Join(t.TempDir(), "silent")
	if err := os.WriteFile(silent, []byte("#!/bin/sh\nexec sleep 600\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := redistest.StartProcess(ctx, redistest.Config{Binary: silent})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
}

func TestStart_PortTaken_IsNoticed(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.Kill()
	l, err := net.Listen("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := s.Process.Restart(ctx); err == nil {
		t.Fatal("restarted on a port that is in use")
	}
	l.Close()
	s.Restart()
}

func TestServer_Close_RemovesTheDirectory(t *testing.T) {
	t.Parallel()
	p, err := redistest.StartProcess(t.Context(), redistest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(p.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
}

func TestServer_ParentKilled_Dies(t *testing.T) {
	t.Parallel()
	if !parentDeathSignal {
		t.Skip("this platform has no parent-death signal")
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), orphanEnv+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	var dir string
	if _, err := fmt.Fscan(out, &pid, &dir); err != nil {
		cmd.Process.Kill()
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	cmd.Process.Kill()
	cmd.Wait()
	deadline := time.Now().Add(10 * time.Second)
	for alive(pid) {
		if time.Now().After(deadline) {
			t.Fatalf("server %d outlived its parent", pid)
		}
		time.Sleep(time.Millisecond) // a poll, bounded above
	}
}

func TestBinary_Missing_SaysHowToInstall(t *testing.T) {
	for _, named := range []string{"", "no-such-server"} {
		t.Setenv(redistest.BinaryEnv, named)
		t.Setenv("PATH", "")
		_, err := redistest.Binary()
		if !errors.Is(err, redistest.ErrNotInstalled) {
			t.Fatal(err)
		}
		if !strings.Contains(err.Error(), "install") {
			t.Errorf("no way out in %q", err)
		}
	}
}

func TestBinary_Several_PrefersEnvironmentThenRedisThenValkey(t *testing.T) {
	dir := t.TempDir()
	add := func(name string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	t.Setenv("PATH", dir)
	t.Setenv(redistest.BinaryEnv, "")
	expect := func(want string) {
		t.Helper()
		if got, err := redistest.Binary(); got != want {
			t.Errorf("found %q (%v), want %q", got, err, want)
		}
	}
	expect(add("valkey-server"))
	expect(add("redis-server"))
	mine := add("mine")
	t.Setenv(redistest.BinaryEnv, mine)
	expect(mine)
}

// ping sends an inline PING and returns the line that comes back.
func ping(t *testing.T, network, addr string) string {
	t.Helper()
	conn, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return pingOn(t, conn)
}

func pingOn(t *testing.T, conn net.Conn) string {
	t.Helper()
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	fmt.Fprint(conn, "PING\r\n")
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(line, "\r\n")
}

func TestServer_AtHand_HasItsVersion(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	info := s.Info("INFO", "server")
	name, number, _ := strings.Cut(s.Version(), " ")
	if !strings.Contains(info, strings.ToLower(name)+"_version:"+number+"\r") {
		t.Errorf("%s, which says\n%s", s.Version(), info)
	}
	_, refused := s.Do("PUBSUB", "SHARDNUMSUB").(redistest.ReplyError)
	if s.Can(redistest.ShardedChannels) == refused {
		t.Errorf("%s can have sharded channels: %v, refuses: %v", s.Version(), !refused, refused)
	}
}
