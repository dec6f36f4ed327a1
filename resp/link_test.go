package resp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/internal/fakenode"
	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/internal/sockettest"
	"github.com/pawl-lock/pawl/resp/internal/handshake"
	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/internal/requesttest"
)

// stateLog records OnState and checks that each connection's calls are serial
// and alternate.
type stateLog struct {
	t      *testing.T
	client *Client // set before the first loss

	mu     sync.Mutex
	up     map[string]bool
	inside map[string]bool
	ups    map[string]int
}

func newStateLog(t *testing.T) *stateLog {
	return &stateLog{t: t, up: map[string]bool{}, inside: map[string]bool{}, ups: map[string]int{}}
}

func (l *stateLog) onState(s State) {
	key := fmt.Sprintf("%v %d", s.Role, s.Lane)
	l.mu.Lock()
	if l.inside[key] {
		l.t.Errorf("%s: two calls at once", key)
	}
	l.inside[key] = true
	if s.Up == l.up[key] {
		l.t.Errorf("%s: twice up=%v", key, s.Up)
	}
	l.up[key] = s.Up
	if s.Up {
		l.ups[key]++
		if s.Err != nil || s.Reconnects != l.ups[key]-1 {
			l.t.Errorf("%s: %+v at its connection number %d", key, s, l.ups[key])
		}
	} else if s.Err == nil {
		l.t.Errorf("%s: lost without a reason", key)
	}
	c := l.client
	l.mu.Unlock()
	if c != nil && !s.Up && c.Up(s.Role, s.Lane) { // the other way round it is being lost again
		l.t.Errorf("%s: Up() disagrees with OnState(up=%v)", key, s.Up)
	}
	l.mu.Lock()
	l.inside[key] = false
	l.mu.Unlock()
}

func (l *stateLog) setClient(c *Client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.client = c
}

// everyUp reports whether each of n connections has come up more than k times
// and is up.
func (l *stateLog) everyUp(n, k int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range l.ups {
		if l.ups[key] <= k || !l.up[key] {
			return false
		}
	}
	return len(l.ups) == n
}

// channelLog knows what a channel has said last.
type channelLog struct {
	mu      sync.Mutex
	live    bool
	message string
}

func (l *channelLog) ChannelEvent(ev ChannelEvent, payload []byte, _ error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ev == Message {
		l.message = string(payload)
	} else {
		l.live = ev == Subscribed
	}
}

func (l *channelLog) now() (live bool, message string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.live, l.message
}

func TestLink_ServerRestarts_EveryConnectionComesBack(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, cfg Config) {
		s := redistest.Start(t)
		log := newStateLog(t)
		cfg.Addr, cfg.Lanes, cfg.OnState = s.Addr(), 2, log.onState
		cfg.CommandTimeout = clientPatience // connections are lost by the kill alone
		c := ready(t, cfg)
		log.setClient(c)
		said := new(channelLog)
		c.Subscribe(NewChannel("news", said))
		live := func() bool { live, _ := said.now(); return live }
		eventually(t, "it is subscribed", live)

		for round := 1; round <= 3; round++ {
			s.Kill()
			eventually(t, "all connections are down", func() bool { return c.Stats().Connections == 0 && !live() })
			if _, err := c.Do(testContext(t), "PING"); !errors.Is(err, ErrDown) || !errors.Is(err, ErrNotSent) {
				t.Errorf("Do without a server: %v", err)
			}
			s.Restart()
			eventually(t, "all connections are up again", func() bool { return log.everyUp(4, round) })
			// A pub/sub connection whose dial began before that of a lane failed is made once more (see
			// resubscribe): until then a message may be lost.
			eventually(t, "messages arrive", func() bool {
				s.Do("PUBLISH", "news", fmt.Sprint(round))
				_, message := said.now()
				return message == fmt.Sprint(round)
			})
			if _, err := c.Do(testContext(t), "PING"); err != nil {
				t.Fatal(err)
			}
		}
		if st := c.Stats(); st.Reconnects < 3*4 { // one may be made while the server is being killed
			t.Errorf("stats: %+v", st)
		}
		eventually(t, "the channel is confirmed", func() bool { return live() && c.Stats().ChannelsConfirmed == 1 })
	})
}

func TestLink_LostAtOnce_IsReportedInOrder(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, cfg Config) {
		n := fakenode.New(t)
		// Each connection is cut right behind its handshake, a hundred times over.
		rule := n.OnNext(100, fakenode.Is("PING"), fakenode.Seq(fakenode.Default(), fakenode.Reset()))
		log := newStateLog(t)
		cfg.Addr, cfg.Lanes, cfg.OnState = n.Addr(), 2, log.onState
		// A clock by which each connection lasts makes every pause a short one.
		c := open(t, Config{Addr: cfg.Addr, Lanes: 2, OnState: log.onState, Transport: cfg.Transport, Clock: &leapingClock{}})
		eventually(t, "the storm is over and all are up", func() bool {
			return rule.Hits() == 100 && c.Stats().Connections == 4
		})
		eventually(t, "commands are answered", func() bool { // the last cut may still be on its way
			_, err := c.Do(testContext(t), "PING")
			return err == nil
		})
	})
}

func TestLink_OnStatePanics_GoesOn(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, cfg Config) {
		n := fakenode.New(t)
		n.OnNext(1, fakenode.Is("CUT"), fakenode.Reset())
		cfg.Addr, cfg.Lanes = n.Addr(), 1
		cfg.OnState = func(s State) { panic(fmt.Sprint("oops, up: ", s.Up)) }
		var log syncBuffer
		cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		c := ready(t, cfg)
		if _, err := c.Do(testContext(t), "CUT"); !errors.Is(err, ErrOutcomeUnknown) {
			t.Fatalf("CUT: %v", err)
		}
		eventually(t, "the lane is back", func() bool {
			_, err := c.Do(testContext(t), "PING")
			return err == nil
		})
		for _, want := range []string{"oops, up: true", "oops, up: false"} {
			eventually(t, "the log says "+want, func() bool { return log.count(want) > 0 })
		}
	})
}

// leapingClock goes on by backoffMax with every look at it.
type leapingClock struct{ clock.Fake }

func (c *leapingClock) Now() clock.Instant {
	c.Advance(backoffMax + 1)
	return c.Fake.Now()
}

// TestLink_BlackHole_IsGivenUp has a server that is there and answers nothing: no RST,
// no FIN.
func TestLink_BlackHole_IsGivenUp(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, cfg Config) {
		s := redistest.Start(t)
		cfg.Addr, cfg.Lanes, cfg.CommandTimeout, cfg.DialTimeout = s.Addr(), 1, 300*time.Millisecond, 300*time.Millisecond
		c := ready(t, cfg)
		s.Stop()
		rec := requesttest.NewRecorder()
		c.Subscribe(NewChannel("a", rec))
		if _, err := c.Do(testContext(t), "PING"); !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, ErrTimeout) {
			t.Fatalf("Do: %v", err)
		}
		eventually(t, "lane and pub/sub are given up", func() bool { return !c.Up(RoleLane, 0) && !c.Up(RolePubSub, 0) })
		if err := c.LastError(RolePubSub, 0); err == nil {
			t.Error("pub/sub was lost without a reason")
		}
		s.Cont()
		rec.Await(t, Subscribed)
		eventually(t, "the lane is back", func() bool { return c.Up(RoleLane, 0) })
	})
}

// Whoever learns that a connection has ended may ask at once why: the link hears of it last, when all
// commands are completed and all channels know.
func TestLink_ConnectionEnds_WhatItFailsKnowsWhy(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, cfg Config) {
		n := fakenode.New(t)
		n.On(fakenode.Is("ECHO"), fakenode.Drop())
		cfg.Addr, cfg.Lanes = n.Addr(), 1
		c := ready(t, cfg)
		reason := func(role Role) error {
			if c.Up(role, 0) {
				return errors.New("it is up")
			}
			return c.LastError(role, 0)
		}
		var ofPubSub error
		confirmed, lost := make(chan struct{}), make(chan struct{})
		c.Subscribe(NewChannel("a", requesttest.HandlerFunc(func(ev ChannelEvent) {
			switch ev {
			case Subscribed:
				close(confirmed)
			case Disconnected:
				ofPubSub = reason(RolePubSub)
				close(lost)
			}
		})))
		sockettest.Receive(t, confirmed, "the subscription")
		var ofLane error
		call := requesttest.NewCall(1)
		call.Then = func(Reply) { ofLane = reason(RoleLane) }
		c.Submit(0, call)
		n.WaitFor(1, fakenode.Is("ECHO"))
		n.Down()
		var cut *request.Failure
		if r := call.Await(t); !errors.As(r.Err, &cut) || ofLane != cut.Cause {
			t.Errorf("a command failed with %v; its lane is down because of %v", r.Err, ofLane)
		}
		if sockettest.Receive(t, lost, "the loss"); !errors.Is(ofPubSub, io.EOF) && !errors.Is(ofPubSub, syscall.ECONNRESET) {
			t.Errorf("a channel was lost, because of %v", ofPubSub)
		}
	})
}

func TestLink_Idle_IsPingedAndGivenUpIfSilent(t *testing.T) {
	t.Parallel()
	n := fakenode.New(t)
	fake := clock.NewFake()
	c := ready(t, Config{Addr: n.Addr(), Lanes: 1, Clock: fake})
	n.WaitFor(3, fakenode.Is("PING")) // the handshakes'
	// From now on nobody answers.
	silent := n.On(fakenode.Is("PING"), fakenode.Drop())
	fake.Advance(10*time.Second + 1) // a silence after which a connection is pinged
	n.WaitFor(6, fakenode.Is("PING"))
	silent.Remove() // too late for the three that were dropped
	fake.Advance(3*time.Second + 1)
	eventually(t, "all are given up and come back", func() bool {
		st := c.Stats()
		return st.Connections == 3 && st.Reconnects == 3
	})
}

// After a long outage the pauses are long; the first link that gets through must
// fetch its siblings.
func TestLink_SiblingComesBack_TriesAtOnce(t *testing.T) {
	t.Parallel()
	kick := make(chan struct{})
	close(kick)
	b := backoff{rand: sockettest.Rand(t)}
	pause := func() time.Duration {
		b.max()
		start := time.Now()
		b.wait(t.Context(), kick, func(d time.Duration) time.Duration { return d })
		return time.Since(start)
	}
	b.next()
	var kicked time.Duration
	for range 20 { // outages
		b.reset()
		kicked += pause()
	}
	if kicked > 5*time.Second { // unkicked: 20 times half a second or more
		t.Errorf("20 kicked links paused %v", kicked)
	}
	if d := pause(); d < backoffMin {
		t.Errorf("a link kicked twice in one outage paused only %v", d)
	}
}

func TestLink_EveryConnectionUp_WakesItsSiblings(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := ready(t, Config{Addr: s.Addr()})
	kick := c.nodes()[0].sibling()
	c.Subscribe(NewChannel("a", requesttest.NewRecorder()))
	eventually(t, "the subscription", func() bool { return c.Stats().ChannelsConfirmed == 1 })
	s.Do("CLIENT", "KILL", "TYPE", "pubsub")
	select {
	case <-kick:
	case <-testContext(t).Done():
		t.Fatal("the connection came back and nobody was told")
	}
}

// syncBuffer is a log that many goroutines write.
type syncBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) count(text string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Count(s.b.String(), text)
}

// An operator needs one line when a server goes, and one when it is back, with the time between: not
// one for each connection, nor for each attempt.
func TestNode_Outage_IsLoggedOnceAndWhenItEnds(t *testing.T) {
	t.Parallel()
	n := fakenode.New(t)
	var log syncBuffer
	var dials atomic.Int32
	c := ready(t, Config{
		Addr: n.Addr(), Lanes: 1, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			dials.Add(1)
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
	})
	for i := range 2 {
		before := dials.Load()
		n.Down()
		eventually(t, "the links fail again and again", func() bool { return dials.Load() > before+20 })
		if c.DownSince(0) == 0 || c.Ready() == nil {
			t.Error("it does not know of the outage")
		}
		n.Up()
		eventually(t, "all are back", func() bool { return c.Stats().Connections == 3 && c.DownSince(0) == 0 && c.Ready() == nil })
		eventually(t, "the end is logged", func() bool { return log.count("is back") == i+1 })
		if lines := log.count("\n"); lines != 2*(i+1) || log.count("level=WARN") != i+1 || log.count("after=") != i+1 {
			t.Errorf("%d outages: %d lines: %s", i+1, lines, log.b.String())
		}
	}
}

// Attempts with a wrong password are few: they fill logs and lock users out. A password
// that has just been changed is found soon, one that was wrong for long within 30 s.
func TestLink_WrongPassword_BacksOff(t *testing.T) {
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
func TestLink_PasswordRight_AllConnectionsAreBack(t *testing.T) {
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
func TestLink_PasswordRepaired_ConnectsAndRefusalIsLogged(t *testing.T) {
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
