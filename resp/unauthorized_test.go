package resp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/internal/fakenode"
	"github.com/pawl-lock/pawl/internal/sockettest"
	"github.com/pawl-lock/pawl/resp/wire"
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
				within(t, time.Minute, "the password is right", func() bool { return c.progress().ready })
			})
		})
	}
}

// Connections that are made together are refused together: that is one refusal, and no
// reason to think that the password has been wrong for long.
func TestRefusalsAtATimeCountOnce(t *testing.T) {
	t.Parallel()
	fake := clock.NewFake()
	r := newRefusals(fake)
	wrong := wire.NewServerError([]byte("WRONGPASS no"))
	began := fake.Now()
	for role := range roleScout {
		if err := r.check("a:1", role); err != nil {
			t.Fatal(err)
		}
		fake.Advance(time.Millisecond)
	}
	for role := range roleScout {
		r.note("a:1", role, began, wrong)
	}
	if r.check("a:1", RoleLane) != wrong || r.check("b:1", RoleLane) != nil {
		t.Error("it does not stand, or for others, too")
	}
	fake.Advance(minRefusalPause)
	if err := r.check("a:1", RoleLane); err != nil {
		t.Error("five refusals at a time are counted as five")
	}
	r.note("a:1", RoleLane, fake.Now(), wrong)
	fake.Advance(minRefusalPause - 1)
	if r.check("a:1", RoleLane) == nil {
		t.Error("the second pause is no longer than the first")
	}
	r.note("a:1", RoleLane, fake.Now(), errors.New("connection refused"))
	if err := r.check("a:1", RoleLane); err != nil {
		t.Error("a server that was restarted may have another password")
	}
}

// A wrong password is wrong for all connections to a server; what the user may not do is
// another matter for each kind of them.
func TestRefusalStandsForThoseThatItConcerns(t *testing.T) {
	t.Parallel()
	fake := clock.NewFake()
	r := newRefusals(fake)
	wrong, forbidden := wire.NewServerError([]byte("WRONGPASS no")), wire.NewServerError([]byte("NOPERM no"))
	r.note("a:1", RoleLane, fake.Now(), wrong)
	if r.check("a:1", RolePubSub) != wrong {
		t.Error("the same password is tried by the next connection")
	}
	r.note("a:1", RoleLane, fake.Now(), forbidden)
	if r.check("a:1", RoleLane) != forbidden || r.check("a:1", RolePubSub) != nil {
		t.Error("a password that is right, for a user who may not do everything")
	}
	r.note("a:1", RolePubSub, fake.Now(), nil)
	if r.check("a:1", RoleLane) != forbidden {
		t.Error("the lane's commands are forbidden still")
	}
	r.note("a:1", RoleRenewal, fake.Now(), wrong)
	r.note("a:1", RolePubSub, fake.Now(), nil)
	if r.check("a:1", RoleRenewal) != nil {
		t.Error("one connection got through, and the others go on waiting")
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
		within(t, maxRefusalPause+2*backoffMax, "a connection gets through", func() bool { return c.Stats().Connections > 0 })
		within(t, 2*backoffMax, "the others do, too", func() bool { return c.Stats().Connections == 3 })
	})
}

// A connection that was not needed any more when the server refused it, or before, does
// not make the server look like one that has changed its mind.
func TestAttemptThatIsCalledOffLeavesTheRefusalAsItIs(t *testing.T) {
	t.Parallel()
	fake := clock.NewFake()
	ctx, cancel := context.WithCancel(t.Context())
	cfg := Config{Addr: "a:1", Clock: fake, Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
		cancel()
		return nil, ctx.Err()
	}}.withDefaults()
	wrong := wire.NewServerError([]byte("WRONGPASS no"))
	cfg.refusals.note("a:1", RoleLane, fake.Now(), wrong)
	fake.Advance(minRefusalPause)
	if _, err := cfg.connect(ctx, roleScout); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	cfg.refusals.note("a:1", RoleLane, fake.Now(), wrong)
	fake.Advance(minRefusalPause - 1)
	if cfg.refusals.check("a:1", RoleLane) == nil {
		t.Error("the pause begins small again")
	}
}

// nosyError looks around while it is looked at.
type nosyError struct{ look func() }

func (*nosyError) Error() string { return "no way through" }
func (e *nosyError) As(any) bool { e.look(); return false }

// An error of a Dialer may have methods of its own, which take their time: other
// connections do not wait for them.
func TestErrorOfADialerIsLookedAtWithoutALock(t *testing.T) {
	t.Parallel()
	r := newRefusals(clock.NewFake())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.note("a:1", RoleLane, 1, &nosyError{look: func() { r.check("b:1", RoleLane) }})
	}()
	sockettest.Receive(t, done, "the end of note")
}

func TestRefusalsOfCredentialsAreKnown(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]bool{
		"WRONGPASS invalid username-password pair or user is disabled.":   true,
		"NOAUTH Authentication required.":                                 true,
		"NOPERM this user has no permissions to run the 'select' command": true,
		"ERR invalid password":                                            true,
		"ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?": true,
		"ERR Client sent AUTH, but no password is set":   true,
		"DENIED Redis is running in protected mode":      false,
		"ERR DB index is out of range":                   false,
		"LOADING Redis is loading the dataset in memory": false,
		"ERR max number of clients reached":              false,
	} {
		err := fmt.Errorf("resp: handshake: %w", wire.NewServerError([]byte(line)))
		if unauthorized(err) != want || want && !lasting(err) {
			t.Errorf("%s: refused for its credentials: %v, lasting: %v", line, unauthorized(err), lasting(err))
		}
	}
	if unauthorized(errors.New("WRONGPASS")) {
		t.Error("an error that no server gave")
	}
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
	eventually(t, "all fail", func() bool { return log.count("cannot connect") == 3 })
	password.Store("changed")
	n.Up()
	eventually(t, "the refusals are logged, one for each connection", func() bool { return log.count("WRONGPASS") == 3 })
	password.Store("repaired")
	eventually(t, "all are back", func() bool { return c.Stats().Connections == 3 })
	if n := log.count("cannot connect"); n != 6 {
		t.Errorf("%d lines in the log, want two for each connection", n)
	}
	tries := len(n.Commands(fakenode.Is("AUTH", "changed")))
	if tries > 9 {
		t.Errorf("%d attempts with a wrong password within about a second", tries)
	}
}
