package resp

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pawl-lock/pawl/internal/fakenode"
	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/internal/sockettest"
	"github.com/pawl-lock/pawl/resp/internal/requesttest"
)

func channels(t *testing.T, s *redistest.Server) []any {
	t.Helper()
	list, ok := s.Do("PUBSUB", "CHANNELS").([]any)
	if !ok {
		t.Fatal("PUBSUB CHANNELS gives no list")
	}
	return list
}

func TestChannel_Messages_ReachTheirChannel(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, cfg Config) {
		s := redistest.Start(t)
		cfg.Addr = s.Addr()
		c := ready(t, cfg)
		a, b := requesttest.NewRecorder(), requesttest.NewRecorder()
		chA, chB := NewChannel(t.Name()+"/a", a), NewChannel(t.Name()+"/b", b)
		c.Subscribe(chA)
		c.Subscribe(chA)
		c.Subscribe(chB)
		a.Await(t, Subscribed)
		b.Await(t, Subscribed)
		s.Do("PUBLISH", chA.Name(), "for a")
		s.Do("PUBLISH", chB.Name(), "for b")
		if got := a.Await(t, Message); got != "for a" {
			t.Errorf("a got %q", got)
		}
		if got := b.Await(t, Message); got != "for b" {
			t.Errorf("b got %q", got)
		}
		c.Unsubscribe(chA)
		c.Unsubscribe(chA)
		eventually(t, "one channel is left", func() bool { return c.Stats().Channels == 1 })
		s.Do("PUBLISH", chA.Name(), "for nobody")
		s.Do("PUBLISH", chB.Name(), "for b")
		b.Await(t, Message)
		if len(a.Events) != 0 {
			t.Errorf("a unsubscribed and got %+v", <-a.Events)
		}
		if n := c.Stats().Messages; n != 3 {
			t.Errorf("%d messages were counted", n)
		}
	})
}

func TestChannel_LargeMessages_ArriveWhole(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, cfg Config) {
		s := redistest.Start(t)
		cfg.Addr = s.Addr()
		c := ready(t, cfg)
		rec := requesttest.NewRecorder()
		c.Subscribe(NewChannel(t.Name(), rec))
		rec.Await(t, Subscribed)
		for size := 1; size <= 4<<20; size *= 16 {
			text := make([]byte, size)
			for i := range text {
				text[i] = byte('a' + i%26)
			}
			s.Do("PUBLISH", t.Name(), string(text))
			if got := rec.Await(t, Message); got != string(text) {
				t.Fatalf("a message of %d bytes became one of %d", size, len(got))
			}
		}
	})
}

func TestChannel_Handlers_MaySubscribeAndUnsubscribe(t *testing.T) {
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
			chain[i] = NewChannel(fmt.Sprintf("%s/%d", t.Name(), i), requesttest.HandlerFunc(func(ev ChannelEvent) {
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

func TestChannel_Forbidden_IsRefusedAlone(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.User("narrow on >pw ~* resetchannels &ok-* +@all"))
	c := ready(t, Config{Addr: s.Addr(), Username: "narrow", Password: "pw"})
	var good requesttest.EventCounter
	bad := requesttest.NewRecorder()
	forbidden := NewChannel("secret", bad)
	for i := range 600 {
		if i == 300 {
			c.Subscribe(forbidden)
		}
		c.Subscribe(NewChannel(fmt.Sprintf("ok-%d", i), &good))
	}
	if text := bad.Await(t, Refused); text == "" {
		t.Error("refused without a reason")
	}
	eventually(t, "the others are confirmed", func() bool { return good.Count(Subscribed) == 600 })
	if st := c.Stats(); st.Channels != 600 || st.ChannelsConfirmed != 600 || st.Reconnects != 0 {
		t.Errorf("stats: %+v", st)
	}
	s.Do("ACL", "SETUSER", "narrow", "&secret")
	c.Subscribe(forbidden)
	bad.Await(t, Subscribed)
}

func TestChannel_ConnectionKilled_ThousandsComeBack(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, cfg Config) {
		s := redistest.Start(t)
		const n = 3_000
		cfg.Addr = s.Addr()
		c := ready(t, cfg)
		var all requesttest.EventCounter
		chs := make([]*Channel, n)
		for i := range chs {
			chs[i] = NewChannel(fmt.Sprintf("%s/%d", t.Name(), i), &all)
			c.Subscribe(chs[i])
		}
		eventually(t, "all are confirmed", func() bool { return all.Count(Subscribed) == n })
		for round := 1; round <= 3; round++ {
			s.Do("CLIENT", "KILL", "TYPE", "pubsub")
			eventually(t, "all are disconnected and confirmed again", func() bool {
				return all.Count(Disconnected) >= round*n && all.Count(Subscribed) >= (round+1)*n &&
					c.Stats().ChannelsConfirmed == n
			})
		}
		for i := range chs {
			s.Do("PUBLISH", chs[i].Name(), "x")
		}
		eventually(t, "each has its message", func() bool { return all.Count(Message) == n })
		for _, ch := range chs {
			c.Unsubscribe(ch)
		}
		eventually(t, "all are gone", func() bool { return c.Stats().Channels == 0 })
		if left := channels(t, s); len(left) != 0 {
			t.Fatalf("the server still has %v", left)
		}
	})
}

func TestChannel_RandomSubscriptions_LeaveNothingOnTheServer(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, cfg Config) {
		s := redistest.Start(t)
		cfg.Addr = s.Addr()
		c := ready(t, cfg)
		r := sockettest.Rand(t)
		const workers, names, ops = 8, 50, 100_000 / 8
		var all requesttest.EventCounter
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

// TestChannel_Size_IsSmall counts what a subscribed channel costs beside its name.
func TestChannel_Size_IsSmall(t *testing.T) {
	s := redistest.Start(t)
	c := ready(t, Config{Addr: s.Addr()})
	const n = 100_000
	var all requesttest.EventCounter
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
	eventually(t, "all are confirmed", func() bool { return all.Count(Subscribed) == n })
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
func TestChannel_HandlerPanics_CostsOnlyTheConnection(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, cfg Config) {
		s := redistest.Start(t)
		cfg.Addr = s.Addr()
		c := ready(t, cfg)
		for _, bad := range []ChannelEvent{Message, Disconnected} {
			var panics atomic.Int32
			rec, name := requesttest.NewRecorder(), fmt.Sprintf("panics-%d", bad)
			ch := NewChannel(name, requesttest.HandlerFunc(func(ev ChannelEvent) {
				if ev == bad && panics.Add(1) == 1 {
					panic("as the test wants it")
				}
			}))
			other := NewChannel("other-"+name, rec)
			c.Subscribe(ch)
			c.Subscribe(other)
			rec.Await(t, Subscribed)
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

// The whole way, on a server that comes to its senses.
func TestChannel_RefusedForNow_IsConfirmedLater(t *testing.T) {
	t.Parallel()
	node := fakenode.New(t)
	refusing := node.OnNext(3, fakenode.Is("SUBSCRIBE"), fakenode.Error("BUSY Redis is busy running a script"))
	c := ready(t, Config{Addr: node.Addr()})
	rec := requesttest.NewRecorder()
	c.Subscribe(NewChannel("a", rec))
	rec.Await(t, Subscribed)
	if refusing.Hits() != 3 {
		t.Errorf("refused %d times", refusing.Hits())
	}
}

// The loop may be about to call the handler of a Channel that has just been unsubscribed. The race
// detector is the check.
func TestChannel_Unsubscribed_MayBeUsedAgain(t *testing.T) {
	t.Parallel()
	n := fakenode.New(t)
	c := ready(t, Config{Addr: n.Addr(), Lanes: 1})
	var ch Channel
	for i := range 200 {
		got := make(chan struct{}, 1)
		name := fmt.Sprint("name", i%2)
		ch.Init(name, requesttest.HandlerFunc(func(ChannelEvent) {
			select {
			case got <- struct{}{}:
			default:
			}
		}))
		c.Subscribe(&ch)
		sockettest.Receive(t, got, "Subscribed")
		for range 4 {
			n.Publish(name, "x")
		}
		sockettest.Receive(t, got, "a message")
		c.Unsubscribe(&ch)
	}
}
