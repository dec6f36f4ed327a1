package faultproxy

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"

	"github.com/pawl-lock/pawl/internal/redistest"
)

func TestTrap_CutAfterRequest_ExecutesItAndDropsTheReply(t *testing.T) {
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

func TestTrap_CutBeforeRequest_DoesNotSendIt(t *testing.T) {
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

func TestTrap_CutAfterSubscribe_WaitsForAllConfirmations(t *testing.T) {
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

func TestTrap_ReplaceReply_KeepsItsPlace(t *testing.T) {
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

func TestTrap_Newest_Wins(t *testing.T) {
	t.Parallel()
	_, p := start(t)
	c := dial(t, p)
	p.ReplaceReply(Any, []byte(":1\r\n"), -1)
	p.ReplaceReply(Is("PING"), []byte(":2\r\n"), 1)
	c.ask(":2\r\n", "PING")
	c.ask(":1\r\n", "PING")
}

func TestTrap_Messages_PassBesideConfirmations(t *testing.T) {
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

func TestTrap_MadeUpAnswers_KeepTheirPlace(t *testing.T) {
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

func TestTrap_Cut_NothingFollows(t *testing.T) {
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

// TestProxy_RandomFaults_CountsAgree: whatever happens to connections, a command
// that was answered has been executed, one that was cut before has not, and one
// cut after has.
func TestProxy_RandomFaults_CountsAgree(t *testing.T) {
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
