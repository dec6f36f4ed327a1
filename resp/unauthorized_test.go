package resp

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl/internal/fakenode"
	"github.com/pawl-lock/pawl/resp/internal/handshake"
)

// Attempts with a wrong password are few: they fill logs and lock users out. A password
// that has just been changed is found soon, one that was wrong for long within 30 s.
func TestWrongPasswordIsTriedEverMoreSeldom(t *testing.T) {
	t.Parallel()
	lines := timelines()
	lines["standalone"] = timeline{cfg: Config{Addr: "a:1"}, servers: map[string]func([]string) string{"a:1": says("", "")}}
	for name, line := range lines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				net := newBubbleNet()
				for addr, answer := range line.servers {
					net.on(addr, func(words []string) string {
						if words[0] == "AUTH" && words[1] != "right" {
							return "-WRONGPASS invalid username-password pair or user is disabled.\r\n"
						}
						return answer(words)
					})
				}
				var password atomic.Value
				password.Store("wrong")
				cfg := line.cfg
				cfg.Password = "unused"
				cfg.SentinelPassword = "right"
				cfg.Credentials = func(context.Context) (string, string, error) { return "", password.Load().(string), nil }
				c, end := net.open(t, cfg)
				defer end()

				tries := func() (most int) { // with one server
					net.each(func(s *bubbleServer) { most = max(most, s.asked["AUTH"]) })
					return most
				}
				time.Sleep(4 * time.Second)
				if n := tries(); n < 2 || n > 20 {
					t.Errorf("%d attempts in 4 s: some at first, few in all", n)
				}
				time.Sleep(56 * time.Second)
				before := tries()
				time.Sleep(10 * time.Minute)
				// One every 15 to 30 s, or some at the same moment.
				if n := tries() - before; n < 15 || n > 170 {
					t.Errorf("%d attempts in 10 minutes", n)
				}
				password.Store("right")
				within(t, time.Minute, "the password is right", func() bool { return c.progress(nil).ready })
			})
		})
	}
}

// The password was wrong for long, so it is tried seldom. Once it is right a connection
// finds out, and all are there: a client that can acquire and cannot renew loses its locks.
func TestAllConnectionsAreBackOnceThePasswordIsRight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := newBubbleNet()
		net.on("a:1", says("AUTH", "-WRONGPASS invalid username-password pair or user is disabled.\r\n"))
		c, end := net.open(t, Config{Addr: "a:1", Password: "secret", Lanes: 1})
		defer end()
		time.Sleep(10 * time.Minute)
		net.on("a:1", says("AUTH", ""))
		within(t, handshake.MaxPause+2*backoffMax, "a connection gets through", func() bool { return c.Stats().Connections > 0 })
		within(t, 2*backoffMax, "the others do, too", func() bool { return c.Stats().Connections == 3 })
	})
}

// A server is down, and comes back with another password: that is logged, though the
// outage was already. Each attempt asks for the credentials.
func TestPasswordThatIsRepairedIsFoundAndItsRefusalIsLogged(t *testing.T) {
	t.Parallel()
	n := fakenode.New(t)
	n.On(fakenode.Is("AUTH", "changed"), fakenode.Error("WRONGPASS invalid username-password pair or user is disabled."))
	var log syncBuffer
	var password atomic.Value
	password.Store("first")
	c := ready(t, Config{
		Addr: n.Addr(), Lanes: 1, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Credentials: func(context.Context) (string, string, error) { return "", password.Load().(string), nil },
	})
	n.Down()
	// An attempt may have the first password still, and dial only when the server is back.
	n.On(fakenode.Is("AUTH", "first"), fakenode.Error("WRONGPASS invalid username-password pair or user is disabled."))
	eventually(t, "it is known to be away", func() bool { return log.count("no connection to a server") == 1 })
	password.Store("changed")
	n.Up()
	eventually(t, "the refusal is logged", func() bool { return log.count("WRONGPASS") > 0 })
	password.Store("repaired")
	eventually(t, "all are back", func() bool { return c.Stats().Connections == 3 })
	eventually(t, "the end is logged", func() bool { return log.count("is back") == 1 })
	if n := log.count("\n"); n != 3 || log.count("WRONGPASS") != 1 {
		t.Errorf("%d lines in the log, want three: %s", n, log.b.String())
	}
	tries := len(n.Commands(fakenode.Is("AUTH", "changed")))
	if tries > 9 {
		t.Errorf("%d attempts with a wrong password within about a second", tries)
	}
}

// A server is up before its password is set, or it is a proxy that never heard of one: nobody is
// locked out by that. So the pauses are those of any outage, however long it lasts. At the start it
// is told at once: perhaps nobody needs the password.
func TestLink_PasswordThatNobodyNeeds_PausesAsInAnyOutage(t *testing.T) {
	t.Parallel()
	for _, refusal := range []string{
		"ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?",
		"ERR Client sent AUTH, but no password is set", // before Redis 6, and Envoy
	} {
		var late time.Duration
		const rounds = 20
		for range rounds {
			synctest.Test(t, func(t *testing.T) {
				net := newBubbleNet()
				net.on("a:1", says("AUTH", "-"+refusal+"\r\n"))
				c, end := net.open(t, Config{Addr: "a:1", Password: "secret", Lanes: 1})
				defer end()
				begun := time.Now()
				if err := c.WaitFirst(t.Context()); err == nil || time.Since(begun) > 0 {
					t.Errorf("at the start: %v, after %v", err, time.Since(begun))
				}
				time.Sleep(30 * time.Millisecond) // so long it is up without its password
				net.on("a:1", nil)
				late += within(t, 3*time.Second, "all are connected", func() bool { return c.Stats().Connections == 3 })
			})
		}
		if late /= rounds; late > 250*time.Millisecond {
			t.Errorf("%s: the connections are back %v later on average", refusal, late)
		}
	}
}

// The source of the credentials is late, and while it is, it is asked once a second, whatever the
// pauses have come to. What it says then is tried at once.
func TestLink_CredentialsThatComeLate_AreTriedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := newBubbleNet()
		net.on("a:1", func(words []string) string {
			if words[0] == "AUTH" && words[1] != "right" {
				return "-WRONGPASS invalid username-password pair or user is disabled.\r\n"
			}
			return ""
		})
		var password atomic.Value
		var asked atomic.Int64
		password.Store("first")
		c, end := net.open(t, Config{Addr: "a:1", Lanes: 1, Credentials: func(context.Context) (string, string, error) {
			asked.Add(1)
			return "", password.Load().(string), nil
		}})
		defer end()
		time.Sleep(5 * time.Minute) // the pauses are long
		before := asked.Load()
		time.Sleep(time.Minute)
		if n := asked.Load() - before; n < 30 || n > 61 {
			t.Errorf("asked %d times in a minute", n)
		}
		password.Store("second")
		time.Sleep(2 * time.Second)
		password.Store("right")
		within(t, time.Second+2*backoffMax, "the right ones are tried", func() bool { return c.Stats().Connections == 3 })
	})
}

// While somebody's leases run out, pauses that have begun are cut short: MaxPause.
func TestConfig_MaxPause_BoundsEveryPause(t *testing.T) {
	t.Parallel()
	const most = 100 * time.Millisecond
	for what, fails := range map[string]func(s *bubbleServer){
		"wrong password": func(s *bubbleServer) {
			s.answer = says("AUTH", "-WRONGPASS invalid username-password pair or user is disabled.\r\n")
		},
		"a user whose rights come late": func(s *bubbleServer) {
			s.answer = says("SELECT", "-NOPERM this user has no permissions to run the 'select' command\r\n")
		},
		"no such database":   func(s *bubbleServer) { s.answer = says("SELECT", "-ERR DB index is out of range\r\n") },
		"connection refused": func(s *bubbleServer) { s.refuses = true },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				net := newBubbleNet()
				net.set("a:1", fails)
				var bound atomic.Int64
				c, end := net.open(t, Config{Addr: "a:1", Lanes: 1, Password: "secret", DB: 1,
					MaxPause: func() time.Duration { return time.Duration(bound.Load()) }})
				defer end()
				time.Sleep(10 * time.Minute)
				bound.Store(int64(most))
				time.Sleep(backoffMax) // one that has begun in resp's own loop
				for range 20 {
					net.set("a:1", fails)
					time.Sleep(time.Second)
					net.set("a:1", func(s *bubbleServer) { s.answer, s.refuses = nil, false })
					within(t, 2*most+20*time.Millisecond, "it is back", func() bool { return c.Stats().Connections == 3 })
					time.Sleep(2 * backoffMax) // links that die at birth do not fetch each other
					net.set("a:1", func(s *bubbleServer) { fails(s); s.hangUp() })
				}
			})
		})
	}
}
