package faultproxy

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidwall/redcon"

	"github.com/pawl-lock/pawl/internal/cputime"
)

func TestCut_Picked_ResetsOnlyThose(t *testing.T) {
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

func TestBlackhole_BothWays_SwallowsSilently(t *testing.T) {
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

func TestHeal_NothingLost_KeepsConnections(t *testing.T) {
	t.Parallel()
	_, p := start(t)
	c := dial(t, p)
	c.ask("+PONG\r\n", "PING")
	p.Blackhole(All)
	p.Heal()
	c.ask("+PONG\r\n", "PING")
}

func TestBlackhole_ServerDies_IsHidden(t *testing.T) {
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

func TestPause_Bytes_WaitForResume(t *testing.T) {
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

func TestPause_Sender_FillsItsBuffers(t *testing.T) {
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

func TestDelay_Latency_AddsNoQueue(t *testing.T) {
	t.Parallel()
	_, p := start(t)
	c := dial(t, p)
	c.ask("+PONG\r\n", "PING")
	const up, down, commands = 20 * time.Millisecond, 30 * time.Millisecond, 100
	p.Delay(All, up, down)
	began, used := time.Now(), cputime.Now()
	for i := range commands {
		c.send("ECHO", fmt.Sprint(i))
	}
	for i := range commands {
		c.want(string(redcon.AppendBulkString(nil, fmt.Sprint(i))))
	}
	if took := time.Since(began); took < up+down {
		t.Errorf("took %v, want at least %v", took, up+down)
	} else if used.Elapsed() > commands*(up+down)/4 {
		t.Errorf("took %v: the commands went one by one", took)
	}
	p.Delay(Named("somebody else"), time.Hour, time.Hour)
	p.Delay(All, 0, 0)
	c.ask("+PONG\r\n", "PING")
}
