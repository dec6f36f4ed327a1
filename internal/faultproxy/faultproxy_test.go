package faultproxy

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/internal/respio"
	"github.com/tidwall/redcon"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client is a plain connection with a deadline, so that a lost answer fails.
type client struct {
	t testing.TB
	net.Conn
	r *respio.Reader
}

func dial(t testing.TB, p *Proxy) *client {
	t.Helper()
	nc, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	c := &client{t, nc, respio.NewReader(nc)}
	c.limit(20 * time.Second)
	return c
}

func (c *client) limit(d time.Duration) {
	if err := c.SetDeadline(time.Now().Add(d)); err != nil {
		c.t.Fatal(err)
	}
}

func command(dst []byte, words ...string) []byte {
	dst = redcon.AppendArray(dst, len(words))
	for _, w := range words {
		dst = redcon.AppendBulkString(dst, w)
	}
	return dst
}

func (c *client) send(words ...string) { c.t.Helper(); c.write(command(nil, words...)) }

func (c *client) write(b []byte) {
	c.t.Helper()
	if _, err := c.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) want(raw string) {
	c.t.Helper()
	if got, _, err := c.r.Reply(); err != nil || string(got) != raw {
		c.t.Fatalf("got %q, %v; want %q", got, err, raw)
	}
}

func (c *client) wantEnd(target error) {
	c.t.Helper()
	if got, _, err := c.r.Reply(); !errors.Is(err, target) {
		c.t.Fatalf("got %q, %v; want %v", got, err, target)
	}
}

func (c *client) ask(raw string, words ...string) {
	c.t.Helper()
	c.send(words...)
	c.want(raw)
}

// wantSilence checks that nothing arrives for a moment, not even an end. A proxy
// that leaks a byte late passes; one that leaks at once is caught.
func (c *client) wantSilence() {
	c.t.Helper()
	c.limit(30 * time.Millisecond)
	c.wantEnd(os.ErrDeadlineExceeded)
	c.limit(20 * time.Second)
}

func start(t *testing.T) (*redistest.Server, *Proxy) {
	t.Helper()
	s := redistest.Start(t)
	return s, New(t, "unix", s.Socket())
}

// get asks the server itself, past the proxy.
func get(s *redistest.Server, key string) string { return fmt.Sprint(s.Do("GET", key)) }

func TestProxyPassesPipelinesThrough(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for _, upstream := range [][2]string{{"tcp", s.Addr()}, {"unix", s.Socket()}} {
		t.Run(upstream[0], func(t *testing.T) {
			t.Parallel()
			p := New(t, upstream[0], upstream[1])
			var clients sync.WaitGroup
			const rounds = 500
			for i := range 8 {
				c := dial(t, p)
				clients.Go(func() {
					var b []byte
					for j := range rounds {
						b = command(b, "ECHO", fmt.Sprint(i, "-", j))
						b = command(b, "EVAL", "return {1, {ARGV[1], false}, 'x'}", "0", strings.Repeat("y", j*7))
					}
					if _, err := c.Write(b); err != nil {
						t.Error(err)
					}
				})
				clients.Go(func() {
					for j := range rounds {
						word, long := fmt.Sprint(i, "-", j), strings.Repeat("y", j*7)
						for _, want := range []string{
							string(redcon.AppendBulkString(nil, word)),
							"*3\r\n:1\r\n*2\r\n" + string(redcon.AppendBulkString(nil, long)) + "$-1\r\n$1\r\nx\r\n",
						} {
							if got, _, err := c.r.Reply(); err != nil || string(got) != want {
								t.Errorf("got %.60q, %v; want %.60q", got, err, want)
								return
							}
						}
					}
				})
			}
			clients.Wait()
			stats := p.Stats()
			if stats.Received["ECHO"] != 8*rounds || stats.Forwarded["EVAL"] != 8*rounds || stats.Open != 8 || stats.Accepted != 8 {
				t.Errorf("%+v", stats)
			}
		})
	}
}

func TestEndOfClientReachesServerAndBack(t *testing.T) {
	t.Parallel()
	s, p := start(t)
	a, b := dial(t, p), dial(t, p)
	a.ask("+OK\r\n", "CLIENT", "SETNAME", "a")
	b.ask("+OK\r\n", "CLIENT", "SETNAME", "b")
	a.Close()
	p.WaitConns(1, All)
	if list := fmt.Sprint(s.Do("CLIENT", "LIST")); strings.Contains(list, "name=a ") {
		t.Errorf("the server still has the client: %s", list)
	}
	s.Do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	b.wantEnd(io.EOF)
	p.WaitConns(0, All)
}

func TestCommandsBeforeHalfCloseAreAnswered(t *testing.T) {
	t.Parallel()
	_, p := start(t)
	c := dial(t, p)
	p.Delay(All, 5*time.Millisecond, 5*time.Millisecond)
	c.send("ECHO", "last")
	if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	c.want("$4\r\nlast\r\n")
	c.wantEnd(io.EOF)
}

func TestCutResetsOnlyTheConnectionsPicked(t *testing.T) {
	t.Parallel()
	s, p := start(t)
	sub, lane, other := dial(t, p), dial(t, p), dial(t, p)
	sub.ask("*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n", "SUBSCRIBE", "c")
	lane.ask("+OK\r\n", "CLIENT", "SETNAME", "lane")
	if n := p.Cut(Carried("SUBSCRIBE")); n != 1 {
		t.Errorf("%d connections cut, want 1", n)
	}
	sub.wantEnd(syscall.ECONNRESET)
	if n := p.Cut(Named("lane")); n != 1 {
		t.Errorf("%d connections cut, want 1", n)
	}
	lane.wantEnd(syscall.ECONNRESET)
	other.ask("+PONG\r\n", "PING")
	// The server sees the end as well.
	waitUntil(t, func() bool { return fmt.Sprint(s.Do("PUBSUB", "NUMSUB", "c")) == "[c 0]" })
	if n := p.Cut(Not(Named("x"))); n != 1 {
		t.Errorf("%d connections cut, want 1", n)
	}
	other.wantEnd(syscall.ECONNRESET)
}

// waitUntil polls the server for what it does on its own time.
func waitUntil(t *testing.T, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("still not so after 20 s")
		}
	}
}

func TestCutAfterRequestExecutesItAndDropsTheReply(t *testing.T) {
	t.Parallel()
	s, p := start(t)
	c, bystander := dial(t, p), dial(t, p)
	cut := p.CutAfterRequest(Is("INCR", "k"))
	b := command(nil, "SET", "before", "1")
	b = command(b, "INCR", "k")
	b = command(b, "SET", "after", "1")
	c.write(b)
	c.want("+OK\r\n")
	c.wantEnd(syscall.ECONNRESET)
	cut.Wait(1)
	if before, k, after := get(s, "before"), get(s, "k"), get(s, "after"); before != "1" || k != "1" || after != "<nil>" {
		t.Errorf("before %s, k %s, after %s; want 1, 1, nothing", before, k, after)
	}
	// It was for one command.
	bystander.ask(":2\r\n", "INCR", "k")
}

func TestCutBeforeRequestNeverSendsIt(t *testing.T) {
	t.Parallel()
	s, p := start(t)
	c := dial(t, p)
	cut := p.CutBeforeRequest(Is("INCR", "k"))
	b := command(nil, "SET", "before", "1")
	b = command(b, "INCR", "k")
	b = command(b, "SET", "after", "1")
	c.write(b)
	c.want("+OK\r\n")
	c.wantEnd(syscall.ECONNRESET)
	cut.Wait(1)
	if before, k, after := get(s, "before"), get(s, "k"), get(s, "after"); before != "1" || k != "<nil>" || after != "<nil>" {
		t.Errorf("before %s, k %s, after %s; want 1, nothing, nothing", before, k, after)
	}
	if stats := p.Stats(); stats.Received["INCR"] != 1 || stats.Forwarded["INCR"] != 0 {
		t.Errorf("%+v", stats)
	}
}

func TestCutAfterSubscribeWaitsForAllConfirmations(t *testing.T) {
	t.Parallel()
	s, p := start(t)
	c := dial(t, p)
	// Held at the server's end: subscribed when the cut comes, for it waits for
	// the last confirmation.
	cut := p.CutAfterRequest(Is("SUBSCRIBE"))
	b := command(nil, "PING")
	c.write(command(b, "SUBSCRIBE", "a", "b", "c"))
	c.want("+PONG\r\n")
	c.wantEnd(syscall.ECONNRESET)
	cut.Wait(1)
	waitUntil(t, func() bool { return fmt.Sprint(s.Do("PUBSUB", "CHANNELS")) == "[]" })
}

func TestReplaceReplyTakesTheRepliesPlaceInThePipeline(t *testing.T) {
	t.Parallel()
	s, p := start(t)
	const oom = "-OOM command not allowed when used memory > 'maxmemory'.\r\n"
	trap := p.ReplaceReply(Is("INCR"), []byte(oom), 2)
	all := p.Watch(Any)
	c := dial(t, p)
	var b []byte
	for range 4 {
		b = command(b, "INCR", "k")
		b = command(b, "ECHO", "x")
	}
	c.write(b)
	for _, want := range []string{oom, oom, ":1\r\n", ":2\r\n"} {
		c.want(want)
		c.want("$1\r\nx\r\n")
	}
	trap.Wait(2)
	all.Wait(8)
	if k := get(s, "k"); k != "2" {
		t.Errorf("k is %s, want 2", k)
	}

	endless := p.ReplaceReply(Is("GET"), []byte(":1\r\n"), -1)
	for range 5 {
		c.ask(":1\r\n", "GET", "k")
	}
	endless.Remove()
	c.ask("$1\r\n2\r\n", "GET", "k")
	if endless.Done() != 5 {
		t.Errorf("%d done, want 5", endless.Done())
	}
}

func TestNewestTrapWins(t *testing.T) {
	t.Parallel()
	_, p := start(t)
	c := dial(t, p)
	p.ReplaceReply(Any, []byte(":1\r\n"), -1)
	p.ReplaceReply(Is("PING"), []byte(":2\r\n"), 1)
	c.ask(":2\r\n", "PING")
	c.ask(":1\r\n", "PING")
}

func TestMessagesPassBesideConfirmations(t *testing.T) {
	t.Parallel()
	s, p := start(t)
	c := dial(t, p)
	c.send("SUBSCRIBE", "a", "b")
	c.want("*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n")
	c.want("*3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n")
	trap := p.ReplaceReply(Is("SUBSCRIBE", "c"), []byte("-NOPERM no\r\n"), 1)
	for i := range 50 {
		s.Do("PUBLISH", "a", fmt.Sprint(i))
	}
	c.send("SUBSCRIBE", "c")
	c.send("UNSUBSCRIBE")
	c.send("PING")
	var order []string
	for range 50 + 1 + 2 + 1 {
		raw, _, err := c.r.Reply()
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(raw), "message") {
			order = append(order, strings.ReplaceAll(string(raw), "\r\n", " "))
		}
	}
	got := strings.Join(order, "| ")
	const end = "-NOPERM no | *3 $11 unsubscribe $1 %s :1 | *3 $11 unsubscribe $1 %s :0 | +PONG "
	if got != fmt.Sprintf(end, "a", "b") && got != fmt.Sprintf(end, "b", "a") {
		t.Errorf("got %s", got)
	}
	trap.Wait(1)
}

func TestAnswersMadeUpKeepTheirPlaceAmongConfirmationsAndMessages(t *testing.T) {
	t.Parallel()
	s, p := start(t)
	c := dial(t, p)
	p.ReplaceReply(Is("PING", "made up"), []byte("+MADE UP\r\n"), -1)
	wantConfirmed := func(verb string, counts ...string) {
		t.Helper()
		for _, count := range counts {
			raw, _, err := c.r.Reply()
			if got := string(raw); err != nil || !strings.Contains(got, verb) || !strings.HasSuffix(got, count+"\r\n") {
				t.Fatalf("got %q, %v; want %s %s", got, err, verb, count)
			}
		}
	}

	// One command, several replies: the next answer comes after the last of them.
	b := command(nil, "SUBSCRIBE", "a", "b", "c")
	c.write(command(b, "PING", "made up"))
	wantConfirmed("subscribe", ":1", ":2", ":3")
	c.want("+MADE UP\r\n")

	// A message is nobody's reply, whatever is under way.
	p.Pause(All)
	watch := p.Watch(Is("PING", "made up"))
	b = command(nil, "PING")
	c.write(command(b, "PING", "made up"))
	watch.Wait(1)
	s.Do("PUBLISH", "a", "hello")
	p.Resume()
	c.want("*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$5\r\nhello\r\n")
	c.want("*2\r\n$4\r\npong\r\n$0\r\n\r\n")
	c.want("+MADE UP\r\n")

	// UNSUBSCRIBE from all has as many replies as there are channels.
	b = command(nil, "UNSUBSCRIBE")
	c.write(command(b, "PING", "made up"))
	wantConfirmed("unsubscribe", ":2", ":1", ":0")
	c.want("+MADE UP\r\n")

	// A refused SUBSCRIBE has one reply for all its channels.
	s.Do("ACL", "SETUSER", "narrow", "on", "nopass", "resetchannels", "+@all")
	c.ask("+OK\r\n", "AUTH", "narrow", "x")
	b = command(nil, "SUBSCRIBE", "a", "b")
	c.write(command(b, "PING", "made up"))
	if raw, _, err := c.r.Reply(); err != nil || !strings.HasPrefix(string(raw), "-NOPERM") {
		t.Fatalf("got %q, %v; want NOPERM", raw, err)
	}
	c.want("+MADE UP\r\n")
}

func TestNothingFollowsACut(t *testing.T) {
	t.Parallel()
	_, p := start(t)
	cl := dial(t, p)
	cl.ask("+PONG\r\n", "PING")
	p.Pause(All)
	p.mu.Lock()
	c := p.conns[1]
	p.mu.Unlock()
	for _, it := range []item{{bytes: []byte(":1\r\n")}, {bytes: []byte(":2\r\n")}, {cut: true}, {bytes: []byte(":3\r\n")}} {
		c.down.put(it) // all but the first, which the writer holds already, make one batch
	}
	p.Resume()
	cl.want(":1\r\n")
	cl.want(":2\r\n")
	cl.wantEnd(syscall.ECONNRESET)
}

func TestBlackholeSwallowsBothWaysAndTellsNobody(t *testing.T) {
	t.Parallel()
	s, p := start(t)
	sub, lane := dial(t, p), dial(t, p)
	sub.ask("*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n", "SUBSCRIBE", "c")
	lane.ask("+PONG\r\n", "PING")
	p.Blackhole(Carried("SUBSCRIBE"))

	if got := fmt.Sprint(s.Do("PUBLISH", "c", "lost")); got != "1" {
		t.Errorf("%s receivers: the server must not know", got)
	}
	sub.send("UNSUBSCRIBE", "c")
	sub.wantSilence()
	lane.ask("+PONG\r\n", "PING")

	// A connection to come falls in as soon as it is picked.
	late := dial(t, p)
	late.ask("+PONG\r\n", "PING")
	late.send("SUBSCRIBE", "d")
	late.wantSilence()
	late.Close()

	if got := fmt.Sprint(s.Do("PUBSUB", "CHANNELS")); got != "[c]" {
		t.Errorf("subscribed: %s, want [c]", got)
	}
	p.Heal()
	sub.wantEnd(syscall.ECONNRESET)
	lane.ask("+PONG\r\n", "PING")
	fresh := dial(t, p)
	fresh.ask("*3\r\n$9\r\nsubscribe\r\n$1\r\ne\r\n:1\r\n", "SUBSCRIBE", "e")
	p.WaitConns(2, All)
}

func TestHealLeavesConnectionsThatLostNothing(t *testing.T) {
	t.Parallel()
	_, p := start(t)
	c := dial(t, p)
	c.ask("+PONG\r\n", "PING")
	p.Blackhole(All)
	p.Heal()
	c.ask("+PONG\r\n", "PING")
}

func TestBlackholeHidesTheServersDeath(t *testing.T) {
	t.Parallel()
	s, p := start(t)
	c := dial(t, p)
	c.ask("+PONG\r\n", "PING")
	p.Blackhole(All)
	s.Kill()
	c.wantSilence()
	s.Restart()
	c.wantSilence()
	p.Heal()
	c.wantEnd(syscall.ECONNRESET)
	dial(t, p).ask("+PONG\r\n", "PING")
}

func TestPauseHoldsBytesUntilResume(t *testing.T) {
	t.Parallel()
	s, p := start(t)
	c, other := dial(t, p), dial(t, p)
	c.ask("+OK\r\n", "CLIENT", "SETNAME", "paused")
	p.Pause(Named("paused"))
	watch := p.Watch(Is("INCR"))
	c.send("INCR", "k")
	c.send("INCR", "k")
	watch.Wait(2)
	c.wantSilence()
	if k := get(s, "k"); k != "<nil>" {
		t.Errorf("k is %s: the server got a command", k)
	}
	other.ask("+PONG\r\n", "PING")
	p.Resume()
	c.want(":1\r\n")
	c.want(":2\r\n")
}

func TestPauseFillsTheSendersBuffers(t *testing.T) {
	t.Parallel()
	_, p := start(t)
	c := dial(t, p)
	c.ask("+PONG\r\n", "PING")
	p.Pause(All)
	const commands, size = 20_000, 1 << 10 // 20 MB: more than all buffers hold
	var b []byte
	for range commands {
		b = command(b, "EXISTS", strings.Repeat("x", size))
	}
	written := make(chan error, 1)
	go func() {
		_, err := c.Write(b)
		written <- err
	}()
	select {
	case err := <-written:
		t.Fatalf("20 MB went into a paused connection (%v)", err)
	case <-time.After(250 * time.Millisecond):
	}
	p.Resume()
	for range commands {
		c.want(":0\r\n")
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
}

func TestDelayAddsLatencyButNoOrderAndNoQueueing(t *testing.T) {
	t.Parallel()
	_, p := start(t)
	c := dial(t, p)
	c.ask("+PONG\r\n", "PING")
	const up, down, commands = 20 * time.Millisecond, 30 * time.Millisecond, 100
	p.Delay(All, up, down)
	began := time.Now()
	for i := range commands {
		c.send("ECHO", fmt.Sprint(i))
	}
	for i := range commands {
		c.want(string(redcon.AppendBulkString(nil, fmt.Sprint(i))))
	}
	if took := time.Since(began); took < up+down {
		t.Errorf("took %v, want at least %v", took, up+down)
	} else if took > commands*(up+down)/4 {
		t.Errorf("took %v: the commands went one by one", took)
	}
	p.Delay(Named("somebody else"), time.Hour, time.Hour)
	p.Delay(All, 0, 0)
	c.ask("+PONG\r\n", "PING")
}

func TestDownCutsAndRefusesUntilUp(t *testing.T) {
	t.Parallel()
	_, p := start(t)
	addr := p.Addr()
	for range 3 {
		c := dial(t, p)
		c.ask("+PONG\r\n", "PING")
		p.Down()
		c.wantEnd(syscall.ECONNRESET)
		if nc, err := net.Dial("tcp", addr); err == nil {
			nc.Close()
			t.Fatal("connected to a proxy that is down")
		}
		p.Up()
	}
	dial(t, p).ask("+PONG\r\n", "PING")
}

func TestServerThatIsDownLooksLikeAReset(t *testing.T) {
	t.Parallel()
	s, p := start(t)
	c := dial(t, p)
	c.ask("+PONG\r\n", "PING")
	s.Kill()
	if _, _, err := c.r.Reply(); err == nil {
		t.Error("the end of the server did not reach the client")
	}
	// The reset of a fresh connection may come while it is being dialled.
	if nc, err := net.Dial("tcp", p.Addr()); err == nil {
		_, err = nc.Read(make([]byte, 1))
		nc.Close()
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("server down: %v", err)
		}
	}
	s.Restart()
	dial(t, p).ask("+PONG\r\n", "PING")
}

func TestEndOfTestEndsWhatFaultsHold(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	// goleak sees the goroutines if the proxy does not end them.
	t.Run("inner", func(t *testing.T) {
		p := New(t, "tcp", s.Addr())
		a, b, c := dial(t, p), dial(t, p), dial(t, p)
		for i, cl := range []*client{a, b, c} {
			cl.ask("+OK\r\n", "CLIENT", "SETNAME", fmt.Sprint(i))
		}
		p.Pause(Named("0"))
		p.Blackhole(Named("1"))
		p.Delay(Named("2"), time.Hour, time.Hour)
		watch := p.Watch(Is("ECHO"))
		a.send("ECHO", "x")
		b.send("ECHO", "x")
		c.send("ECHO", "x")
		watch.Wait(3)
	})
}

// TestCountsAgreeUnderRandomFaults: whatever happens to connections, a command
// that was answered has been executed, one that was cut before has not, and one
// cut after has.
func TestCountsAgreeUnderRandomFaults(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s, p := start(t)
	for i := range 6 {
		t.Run(fmt.Sprint("client", i), func(t *testing.T) {
			t.Parallel()
			countUnderRandomFaults(t, s, p, fmt.Sprint("key", i), rand.New(rand.NewPCG(seed, uint64(i))))
		})
	}
}

func countUnderRandomFaults(t *testing.T, s *redistest.Server, p *Proxy, key string, rnd *rand.Rand) {
	executed := 0
	c := dial(t, p)
	for n := range 150 {
		word := fmt.Sprint(key, ".", n) // for the traps to know the command by
		fault := rnd.IntN(8)
		switch fault {
		case 0:
			p.CutBeforeRequest(Has(word))
		case 1:
			p.CutAfterRequest(Has(word))
		case 2:
			p.ReplaceReply(Has(word), []byte("-BUSY\r\n"), 1)
		}
		c.send("EVAL", "return redis.call('INCR', KEYS[1])", "1", key, word)
		switch fault {
		case 0, 1:
			executed += fault
			c.wantEnd(syscall.ECONNRESET)
			c = dial(t, p)
		case 2:
			c.want("-BUSY\r\n")
		default:
			executed++
			c.want(fmt.Sprintf(":%d\r\n", executed))
		}
	}
	if got, err := s.Process.Do("GET", key); err != nil || fmt.Sprint(got) != fmt.Sprint(executed) {
		t.Errorf("the server counts %v (%v), want %d", got, err, executed)
	}
}
