package resp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/internal/fakenode"
	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/internal/sockettest"
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

func TestEveryConnectionComesBackAfterARestart(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, cfg Config) {
		s := redistest.Start(t)
		log := newStateLog(t)
		cfg.Addr, cfg.Lanes, cfg.OnState = s.Addr(), 2, log.onState
		cfg.CommandTimeout = clientPatience // connections are lost by the kill alone
		c := ready(t, cfg)
		log.setClient(c)
		rec := requesttest.NewRecorder()
		ch := NewChannel("news", rec)
		c.Subscribe(ch)
		rec.Await(t, Subscribed)

		for round := 1; round <= 3; round++ {
			s.Kill()
			rec.Await(t, Disconnected)
			eventually(t, "all connections are down", func() bool { return c.Stats().Connections == 0 })
			if _, err := c.Do(testContext(t), "PING"); !errors.Is(err, ErrDown) || !errors.Is(err, ErrNotSent) {
				t.Errorf("Do without a server: %v", err)
			}
			s.Restart()
			rec.Await(t, Subscribed)
			eventually(t, "all connections are up again", func() bool { return log.everyUp(4, round) })
			s.Do("PUBLISH", "news", fmt.Sprint(round))
			if got := rec.Await(t, Message); got != fmt.Sprint(round) {
				t.Fatalf("message %q in round %d", got, round)
			}
			if _, err := c.Do(testContext(t), "PING"); err != nil {
				t.Fatal(err)
			}
		}
		if st := c.Stats(); st.Reconnects < 3*4 || st.ChannelsConfirmed != 1 { // one may be made while the server is being killed
			t.Errorf("stats: %+v", st)
		}
	})
}

func TestConnectionsThatDieAtBirthAreReportedInOrder(t *testing.T) {
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

func TestLinkSurvivesAPanicOfOnState(t *testing.T) {
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

// TestBlackHoleIsNoticed has a server that is there and answers nothing: no RST,
// no FIN.
func TestBlackHoleIsNoticed(t *testing.T) {
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

func TestIdleConnectionsArePingedAndGivenUpIfSilent(t *testing.T) {
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
func TestFirstConnectionThatComesBackFetchesTheOthers(t *testing.T) {
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

func TestEveryConnectionThatComesUpFetchesItsSiblings(t *testing.T) {
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
