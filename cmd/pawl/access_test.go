package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/exit"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/target"
	"github.com/pawl-lock/pawl/internal/redistest"
)

func TestPasswordFile_EveryCommandTakesIt(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Password("right"), redistest.User("ada on >other ~* &* +@all"))
	dir := t.TempDir()
	file, ofAda := filepath.Join(dir, "password"), filepath.Join(dir, "ada")
	replaceFile(t, file, "right\n")
	replaceFile(t, ofAda, "other")
	for _, args := range [][]string{
		{"ping"}, {"status", "a"}, {"exec", "a", "--", "go", "version"}, brief("uncontended"), {"demo", "--increments", "10", "--lease", "1s"},
	} {
		t.Run(args[0], func(t *testing.T) {
			t.Parallel()
			with := func(url, file string) []string {
				return append([]string{args[0], "--addr", url, "--password-file", file}, args[1:]...)
			}
			pawl(t, []string{target.PasswordEnv + "=wrong"}, with("redis://"+s.Addr(), file)...).expect(t, 0) // the flag counts
			pawl(t, nil, with("redis://ada@"+s.Addr(), ofAda)...).expect(t, 0)
			pawl(t, nil, with("redis://"+s.Addr()+"?dial_timeout=2s", file+".gone")...).expect(t, exit.Server, "--password-file", "no such file")
		})
	}
	pawl(t, nil, "unlock", "--force", "a", "--addr", "redis://"+s.Addr(), "--password-file", file).expect(t, 1, "nothing to remove")
	pawl(t, nil, "demo", "--password-file", file).expect(t, exit.Usage, "no password")
	pawl(t, nil, "ping", "--sentinel-password-file", file).expect(t, exit.Usage, "redis+sentinel")
}

func TestSentinelPasswordFile(t *testing.T) {
	t.Parallel()
	r := redistest.StartSentinel(t, redistest.Password("lock"), redistest.SentinelPassword("guard"))
	file := filepath.Join(t.TempDir(), "password")
	url, _, _ := strings.Cut(r.URL(), "?")
	for password, code := range map[string]int{"guard\n": 0, "lock": exit.Server} {
		replaceFile(t, file, password)
		pawl(t, []string{target.URLEnv + "=" + url}, "ping", "--sentinel-password-file", file).expect(t, code)
	}
}

// A command may run for longer than its password is valid.
func TestExec_PasswordRotates_TheLockIsKept(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.User("ada on >old ~* &* +@all"))
	dir := t.TempDir()
	file, up, end := filepath.Join(dir, "password"), filepath.Join(dir, "up"), filepath.Join(dir, "end")
	replaceFile(t, file, "old\n")
	v := start(t, nil, "exec", "job", "--addr", "redis://ada@"+s.Addr()+"?lease=3s", "--password-file", file, "--",
		"sh", "-c", `echo up >`+up+`; while [ ! -e `+end+` ]; do sleep 0.1; done; echo ended by itself`)
	eventually(t, "the command runs", func() bool { _, err := os.Stat(up); return err == nil })
	s.Do("ACL", "SETUSER", "ada", "resetpass", ">new")
	replaceFile(t, file, "new\n")
	if n := s.Do("CLIENT", "KILL", "USER", "ada"); n != int64(3) {
		t.Fatalf("%v connections were cut", n)
	}
	eventually(t, "its connections are back", func() bool {
		list, _ := s.Do("CLIENT", "LIST").(string)
		return strings.Count(list, "user=ada") == 3
	})
	replaceFile(t, end, "")
	v.wait(t).expect(t, 0, "ended by itself")
}

func TestTLSServerName_IsWhatCertificatesMustHave(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.TLS())
	flags := []string{"ping", "--cacert", filepath.Join(s.Dir(), "cert.pem"), "--addr"}
	pawl(t, nil, append(flags, s.URL(), "--tls-server-name", "localhost")...).expect(t, 0)
	pawl(t, nil, append(flags, s.URL()+"?tls_server_name=localhost")...).expect(t, 0)
	for _, args := range [][]string{
		append(flags, s.URL(), "--tls-server-name", "elsewhere.example"), append(flags, s.URL()+"?tls_server_name=elsewhere.example"),
	} {
		pawl(t, nil, args...).expect(t, exit.Server, "elsewhere.example", "--tls-server-name", "cluster-announce-hostname")
	}
	pawl(t, nil, "ping", "--addr", "redis://"+s.Addr(), "--tls-server-name", "localhost").expect(t, exit.Usage, "begins with rediss")
}

// As it comes out of files and secrets.
func TestURLAndPasswordOfTheEnvironment_WhatSurroundsThem(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Password("sesame"), redistest.User("ada on nopass ~* &* +@all"), redistest.User("bob on >bobs ~* &* +@all"))
	open := redistest.Start(t)
	for _, c := range []struct {
		url, password string
		code          int
		texts         []string
	}{
		{url: "\"redis://:sesame@" + s.Addr() + "\"\r\n"},
		{url: " valkey://" + s.Addr() + "\n", password: "sesame\n"},
		{url: "REDIS://default@" + s.Addr(), password: "sesame\r\n"},
		{url: "redis://ada:@" + s.Addr()},
		{url: "redis://default:@" + open.Addr()},
		{url: "redis://bob@" + s.Addr(), password: "bobs"},
		{url: "redis://" + open.Addr() + "?protocol=3&pool_size=10", texts: []string{"mean nothing here: pool_size, protocol"}},
		{url: "redis://" + s.Addr(), password: "'sesame'", code: exit.Server, texts: []string{"the password has quotes around it"}},
		{url: "redis://:%20sesame@" + s.Addr(), code: exit.Server, texts: []string{"the password has a blank"}},
		{url: "redis://h:sesame@" + s.Addr(), code: exit.Server, texts: []string{`the user is "h"`}},
		{url: "redis://:needless@" + open.Addr(), code: exit.Server, texts: []string{"the server has no password: leave it out"}},
		{url: "redis://ada@" + s.Addr(), code: exit.Usage, texts: []string{"a user that needs none is written as user:@"}},
	} {
		env := []string{target.URLEnv + "=" + c.url, target.PasswordEnv + "=" + c.password}
		v := pawl(t, env, "ping")
		if v.expect(t, c.code, c.texts...); strings.Contains(v.stderr.String(), "sesame") || strings.Contains(v.stderr.String(), "needless") {
			t.Errorf("a password was printed: %s", v.stderr.String())
		}
	}
	// Cron mails whatever is printed.
	v := pawl(t, []string{target.URLEnv + "=redis://" + open.Addr() + "?pool_size=10"}, "exec", "a", "--", "true")
	if v.expect(t, 0); v.stderr.Len() > 0 {
		t.Error(v.stderr.String())
	}
}
