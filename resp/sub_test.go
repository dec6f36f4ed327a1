package resp

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pawl-lock/pawl/internal/pace"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// recorder is a ChannelHandler that hands every event to the test.
type recorder struct{ events chan recorded }

type recorded struct {
	ev      ChannelEvent
	payload string
	err     error
}

func newRecorder() *recorder { return &recorder{events: make(chan recorded, 1024)} }

func (r *recorder) ChannelEvent(ev ChannelEvent, payload []byte, err error) {
	r.events <- recorded{ev, string(payload), err}
}

// await takes the next event, which must be ev, and returns its payload or error.
func (r *recorder) await(t *testing.T, ev ChannelEvent) string {
	t.Helper()
	ctx, cancel := pace.WithTimeout(context.Background(), clientPatience)
	defer cancel()
	select {
	case e := <-r.events:
		if e.ev != ev {
			t.Fatalf("event %d (%q, %v) instead of %d", e.ev, e.payload, e.err, ev)
		}
		if e.err != nil {
			return e.err.Error()
		}
		return e.payload
	case <-ctx.Done():
		t.Fatalf("event %d did not come", ev)
	}
	return ""
}

// tally is a ChannelHandler that counts, for tests with many channels.
type tally struct{ counts [Refused + 1]atomic.Int64 }

func (c *tally) ChannelEvent(ev ChannelEvent, _ []byte, _ error) { c.counts[ev].Add(1) }

func (c *tally) count(ev ChannelEvent) int { return int(c.counts[ev].Load()) }

func channels(t *testing.T, s *redistest.Server) []any {
	t.Helper()
	list, ok := s.Do("PUBSUB", "CHANNELS").([]any)
	if !ok {
		t.Fatal("PUBSUB CHANNELS gives no list")
	}
	return list
}

func TestMessagesReachTheirChannel(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, cfg Config) {
		s := redistest.Start(t)
		cfg.Addr = s.Addr()
		c := ready(t, cfg)
		a, b := newRecorder(), newRecorder()
		chA, chB := NewChannel(t.Name()+"/a", a), NewChannel(t.Name()+"/b", b)
		c.Subscribe(chA)
		c.Subscribe(chA)
		c.Subscribe(chB)
		a.await(t, Subscribed)
		b.await(t, Subscribed)
		s.Do("PUBLISH", chA.Name(), "for a")
		s.Do("PUBLISH", chB.Name(), "for b")
		if got := a.await(t, Message); got != "for a" {
			t.Errorf("a got %q", got)
		}
		if got := b.await(t, Message); got != "for b" {
			t.Errorf("b got %q", got)
		}
		c.Unsubscribe(chA)
		c.Unsubscribe(chA)
		eventually(t, "one channel is left", func() bool { return c.Stats().Channels == 1 })
		s.Do("PUBLISH", chA.Name(), "for nobody")
		s.Do("PUBLISH", chB.Name(), "for b")
		b.await(t, Message)
		if len(a.events) != 0 {
			t.Errorf("a unsubscribed and heard %+v", <-a.events)
		}
	})
}

func TestLargeMessagesArriveWhole(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, cfg Config) {
		s := redistest.Start(t)
		cfg.Addr = s.Addr()
		c := ready(t, cfg)
		rec := newRecorder()
		c.Subscribe(NewChannel(t.Name(), rec))
		rec.await(t, Subscribed)
		for size := 1; size <= 4<<20; size *= 16 {
			text := make([]byte, size)
			for i := range text {
				text[i] = byte('a' + i%26)
			}
			s.Do("PUBLISH", t.Name(), string(text))
			if got := rec.await(t, Message); got != string(text) {
				t.Fatalf("a message of %d bytes became one of %d", size, len(got))
			}
		}
	})
}

func TestHandlersMaySubscribeAndUnsubscribe(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, cfg Config) {
		s := redistest.Start(t)
		cfg.Addr = s.Addr()
		c := ready(t, cfg)
		// Each channel, once confirmed, leaves and subscribes the next one.
		const n = 500
		done := make(chan struct{})
		chain := make([]*Channel, n)
		for i := range chain {
			chain[i] = NewChannel(fmt.Sprintf("%s/%d", t.Name(), i), handlerFunc(func(ev ChannelEvent) {
				c.Unsubscribe(chain[i])
				if i+1 < n {
					c.Subscribe(chain[i+1])
				} else {
					close(done)
				}
			}))
		}
		c.Subscribe(chain[0])
		eventually(t, "the end of the chain", func() bool {
			select {
			case <-done:
				return true
			default:
				return false
			}
		})
		eventually(t, "nothing is left", func() bool { return c.Stats().Channels == 0 })
	})
}

type handlerFunc func(ev ChannelEvent)

func (f handlerFunc) ChannelEvent(ev ChannelEvent, _ []byte, _ error) { f(ev) }

func TestForbiddenChannelIsRefusedAlone(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.User("narrow on >pw ~* resetchannels &ok-* +@all"))
	c := ready(t, Config{Addr: s.Addr(), Username: "narrow", Password: "pw"})
	var good tally
	bad := newRecorder()
	forbidden := NewChannel("secret", bad)
	for i := range 600 {
		if i == 300 {
			c.Subscribe(forbidden)
		}
		c.Subscribe(NewChannel(fmt.Sprintf("ok-%d", i), &good))
	}
	if text := bad.await(t, Refused); text == "" {
		t.Error("refused without a reason")
	}
	eventually(t, "the others are confirmed", func() bool { return good.count(Subscribed) == 600 })
	if st := c.Stats(); st.Channels != 600 || st.ChannelsConfirmed != 600 || st.Reconnects != 0 {
		t.Errorf("stats: %+v", st)
	}
	s.Do("ACL", "SETUSER", "narrow", "&secret")
	c.Subscribe(forbidden)
	bad.await(t, Subscribed)
}

func TestTenThousandChannelsSurviveAKilledConnection(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, cfg Config) {
		s := redistest.Start(t)
		const n = 10_000
		cfg.Addr = s.Addr()
		c := ready(t, cfg)
		var all tally
		chs := make([]*Channel, n)
		for i := range chs {
			chs[i] = NewChannel(fmt.Sprintf("%s/%d", t.Name(), i), &all)
			c.Subscribe(chs[i])
		}
		eventually(t, "all are confirmed", func() bool { return all.count(Subscribed) == n })
		for round := 1; round <= 3; round++ {
			s.Do("CLIENT", "KILL", "TYPE", "pubsub")
			eventually(t, "all are told and confirmed again", func() bool {
				return all.count(Disconnected) >= round*n && all.count(Subscribed) >= (round+1)*n &&
					c.Stats().ChannelsConfirmed == n
			})
		}
		for i := range chs {
			s.Do("PUBLISH", chs[i].Name(), "x")
		}
		eventually(t, "each has its message", func() bool { return all.count(Message) == n })
		for _, ch := range chs {
			c.Unsubscribe(ch)
		}
		eventually(t, "all are gone", func() bool { return c.Stats().Channels == 0 })
		if left := channels(t, s); len(left) != 0 {
			t.Fatalf("the server still has %v", left)
		}
	})
}

func TestRandomSubscriptionsLeaveNothingOnTheServer(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, cfg Config) {
		s := redistest.Start(t)
		cfg.Addr = s.Addr()
		c := ready(t, cfg)
		r := newTestRand(t)
		const workers, names, ops = 8, 50, 100_000 / 8
		var all tally
		var wg sync.WaitGroup
		for w := range workers {
			r := fork(r)
			wg.Go(func() {
				chs := make([]*Channel, names)
				for i := range chs {
					chs[i] = NewChannel(fmt.Sprintf("%s/%d", t.Name(), i), &all)
				}
				for range ops {
					ch := chs[r.IntN(names)]
					switch k := r.IntN(100); {
					case k < 50:
						c.Subscribe(ch)
					case k < 99:
						c.Unsubscribe(ch)
					case w == 0 && r.IntN(20) == 0:
						s.Process.Do("CLIENT", "KILL", "TYPE", "pubsub")
					default:
						runtime.Gosched()
					}
				}
				for _, ch := range chs {
					c.Unsubscribe(ch)
				}
			})
		}
		wg.Wait()
		eventually(t, "the client forgets all", func() bool { return c.Stats().Channels == 0 && c.Up(RolePubSub, 0) })
		eventually(t, "the server forgets all", func() bool { return len(channels(t, s)) == 0 })
	})
}

// TestChannelIsSmall counts what a subscribed channel costs beside its name.
func TestChannelIsSmall(t *testing.T) {
	s := redistest.Start(t)
	c := ready(t, Config{Addr: s.Addr()})
	const n = 100_000
	var all tally
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("redisson_lock__channel:{%d}", i)
	}
	before := heap()
	chs := make([]*Channel, n)
	for i := range chs {
		chs[i] = NewChannel(names[i], &all)
		c.Subscribe(chs[i])
	}
	eventually(t, "all are confirmed", func() bool { return all.count(Subscribed) == n })
	each := (heap() - before - 8*n) / n
	t.Logf("%d bytes per channel", each)
	if each > 200 {
		t.Errorf("%d bytes per channel beside its name", each)
	}
	runtime.KeepAlive(names)
	runtime.KeepAlive(chs)
}

func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// A panic in a handler is a bug of the module; it must not cost more than a
// connection.
func TestHandlerThatPanicsCostsOnlyTheConnection(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, cfg Config) {
		s := redistest.Start(t)
		cfg.Addr = s.Addr()
		c := ready(t, cfg)
		for _, bad := range []ChannelEvent{Message, Disconnected} {
			var panics atomic.Int32
			rec, name := newRecorder(), fmt.Sprintf("panics-%d", bad)
			ch := NewChannel(name, handlerFunc(func(ev ChannelEvent) {
				if ev == bad && panics.Add(1) == 1 {
					panic("as the test wants it")
				}
			}))
			other := NewChannel("other-"+name, rec)
			c.Subscribe(ch)
			c.Subscribe(other)
			rec.await(t, Subscribed)
			eventually(t, "both are subscribed", func() bool { return c.Stats().ChannelsConfirmed == 2 })
			reconnects := c.Stats().Reconnects
			if bad == Message {
				s.Do("PUBLISH", name, "hi")
			} else {
				s.Do("CLIENT", "KILL", "TYPE", "pubsub")
			}
			eventually(t, "both are subscribed anew", func() bool {
				st := c.Stats()
				return panics.Load() > 0 && st.Reconnects == reconnects+1 && st.ChannelsConfirmed == 2
			})
			c.Unsubscribe(ch)
			c.Unsubscribe(other)
			eventually(t, "both are gone", func() bool { return c.Stats().Channels == 0 })
		}
	})
}
