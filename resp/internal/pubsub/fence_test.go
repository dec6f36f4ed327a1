package pubsub

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/wire"
)

// shardedLab is a subs with sharded channels, on a connection whose server is the test.
type shardedLab struct {
	t       *testing.T
	subs    *subs
	conn    uint32
	flusher flusher
	reader  listener
	moved   int
}

func newShardedLab(t *testing.T) *shardedLab {
	l := &shardedLab{t: t, subs: newSubs()}
	l.subs.sharded, l.subs.moved = true, func() { l.moved++ }
	l.conn = l.subs.connected()
	return l
}

// sent returns the commands that are written now, one a word or two.
func (l *shardedLab) sent() string {
	var said []string
	b := l.subs.flush(&l.flusher, l.conn, nil, clock.Instant(1))
	for len(b) > 0 {
		v, n, err := wire.Decode(b)
		if err != nil || n == 0 {
			l.t.Fatal(n, err)
		}
		var words []string
		v.Each(func(_ int, e wire.Value) bool { words = append(words, string(e.Bytes)); return true })
		said = append(said, strings.Join(words, " "))
		b = b[n:]
	}
	return strings.Join(said, ", ")
}

func (l *shardedLab) sends(want string) {
	l.t.Helper()
	if got := l.sent(); got != want {
		l.t.Fatalf("sent %q, want %q", got, want)
	}
}

// feed has replies arrive: "+x" confirms the subscription of x, "-x" its end, "pong" and "!TEXT".
func (l *shardedLab) feed(replies ...string) error {
	l.t.Helper()
	for _, r := range replies {
		raw := "*2\r\n$4\r\npong\r\n$0\r\n\r\n"
		switch r[0] {
		case '+':
			raw = fmt.Sprintf("*3\r\n$10\r\nssubscribe\r\n$%d\r\n%s\r\n:1\r\n", len(r)-1, r[1:])
		case '-':
			raw = fmt.Sprintf("*3\r\n$12\r\nsunsubscribe\r\n$%d\r\n%s\r\n:1\r\n", len(r)-1, r[1:])
		case '!':
			raw = "-" + r[1:] + "\r\n"
		}
		v, _, err := wire.Decode([]byte(raw))
		if err != nil {
			l.t.Fatal(err)
		}
		if err := l.subs.reply(&l.reader, l.conn, v); err != nil {
			return err
		}
	}
	return nil
}

// lastEvent is the latest event of a channel.
type lastEvent struct{ last request.ChannelEvent }

func (h *lastEvent) ChannelEvent(ev request.ChannelEvent, _ []byte, _ error) { h.last = ev }

func (l *shardedLab) subscribe(name string) (*Channel, *lastEvent) {
	h := new(lastEvent)
	ch := NewChannel(name, h)
	l.subs.subscribe(ch)
	return ch, h
}

// The slot leaves while SUNSUBSCRIBE is on its way, in any of the ways in which servers word that: every
// answer is given to its command, and the connection stays.
func TestSubs_UnsubscribeCrossesTheEndOfASubscription_KeepsPositions(t *testing.T) {
	t.Parallel()
	for name, answers := range map[string][]string{
		"asked":                         {"-x", "pong"},
		"unasked, moved":                {"-x", "!MOVED 1 a:1", "pong"},
		"unasked, the slot is nobody's": {"-x", "!CLUSTERDOWN Hash slot not served", "pong"},
		"unasked, other words":          {"-x", "!ERR slot is migrating", "pong"},
		"unasked, and it came back":     {"-x", "-x", "pong"},
		"another one, unasked":          {"-z", "-x", "pong"},
		"refused":                       {"!CLUSTERDOWN The cluster is down", "pong"},
		"PING is forbidden":             {"-x", "!NOPERM this user has no permissions to run the 'ping' command"},
		"refused, PING is forbidden":    {"!MOVED 1 a:1", "!NOPERM this user has no permissions to run the 'ping' command"},
		"all of that":                   {"-x", "!MOVED 1 a:1", "!NOPERM this user has no permissions to run the 'ping' command"},
		"both are forbidden":            {"!NOPERM no 'sunsubscribe'", "!NOPERM no 'ping'"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newShardedLab(t)
			x, _ := l.subscribe("x")
			l.sends("SSUBSCRIBE x")
			if err := l.feed("+x"); err != nil {
				t.Fatal(err)
			}
			l.subs.unsubscribe(x)
			_, y := l.subscribe("y")
			l.sends("SUNSUBSCRIBE x, PING, SSUBSCRIBE y")
			if err := l.feed(answers...); err != nil {
				t.Fatal(err)
			}
			if err := l.feed("+y"); err != nil || y.last != request.Subscribed {
				t.Errorf("y: %v, %v", y.last, err)
			}
		})
	}
}

// The same, and the refusal of the command behind it is not taken for that of SUNSUBSCRIBE.
func TestSubs_CommandBehindUnsubscribeIsRefused_HearsSo(t *testing.T) {
	t.Parallel()
	l := newShardedLab(t)
	x, _ := l.subscribe("x")
	l.sends("SSUBSCRIBE x")
	_ = l.feed("+x")
	l.subs.unsubscribe(x)
	_, y := l.subscribe("y")
	l.sends("SUNSUBSCRIBE x, PING, SSUBSCRIBE y")
	if err := l.feed("-x", "!CLUSTERDOWN Hash slot not served", "pong", "!NOPERM this user may not"); err != nil || y.last != request.Refused {
		t.Errorf("y: %v, %v", y.last, err)
	}
	if l.moved != 1 {
		t.Errorf("%d reasons to look for the slot", l.moved)
	}
	l.sends("")
	if n, _, _ := l.subs.counts(); n != 0 {
		t.Errorf("%d topics are left", n)
	}
}

// It is asked for again before the answer to SUNSUBSCRIBE: the last word counts.
func TestSubs_ChannelThatComesBackBehindItsUnsubscribe_IsSubscribed(t *testing.T) {
	t.Parallel()
	for _, answers := range [][]string{{"-x", "pong"}, {"-x", "!MOVED 1 a:1", "pong"}, {"-x", "!CLUSTERDOWN x", "pong"}} {
		l := newShardedLab(t)
		x, _ := l.subscribe("x")
		l.sends("SSUBSCRIBE x")
		_ = l.feed("+x")
		l.subs.unsubscribe(x)
		l.sends("SUNSUBSCRIBE x, PING")
		_, again := l.subscribe("x")
		l.sends("SSUBSCRIBE x")
		if err := l.feed(append(answers, "+x")...); err != nil || again.last != request.Subscribed {
			t.Errorf("%v: %v, %v", answers, again.last, err)
		}
	}
}

// A PONG before any answer to the UNSUBSCRIBE is no answer of a server that can be trusted.
func TestSubs_PongInPlaceOfAnAnswer_ClosesTheConnection(t *testing.T) {
	t.Parallel()
	l := newShardedLab(t)
	x, _ := l.subscribe("x")
	l.sends("SSUBSCRIBE x")
	_ = l.feed("+x")
	l.subs.unsubscribe(x)
	l.sends("SUNSUBSCRIBE x, PING")
	if err := l.feed("pong"); err == nil {
		t.Error("it goes on")
	}
}

// A refusal of the connection is one of every command: another connection may be better.
func TestSubs_ConnectionRefused_IsClosed(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"NOAUTH Authentication required.", "ERR max number of clients reached"} {
		l := newShardedLab(t)
		l.subscribe("x")
		l.sends("SSUBSCRIBE x")
		if err := l.feed("!" + line); err == nil || !strings.HasSuffix(err.Error(), line) {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// What is refused, and not only for now, is reported once a connection.
func TestSubs_ChannelsRefused_ComplainsOnceAConnection(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]int{
		"ERR unknown command 'SSUBSCRIBE'": 1,
		"ERR command is disabled":          1,
		"NOPERM this user may not":         1,
		"BUSY Redis is busy":               0,
		"CLUSTERDOWN Hash slot not served": 0,
		"MOVED 1 a:1":                      0,
	} {
		l := newShardedLab(t)
		delivered := 0
		for i := range 3 {
			l.subscribe(fmt.Sprint("x", i))
			l.sent()
			if err := l.feed("!" + line); err != nil {
				t.Fatal(err)
			}
			if l.subs.complaint() != nil {
				delivered++
			}
		}
		if delivered != want {
			t.Errorf("%s: reported %d times, want %d", line, delivered, want)
		}
		l.subs.disconnected()
		l.conn = l.subs.connected()
		l.subscribe("y")
		l.sent()
		if err := l.feed("!" + line); err != nil {
			t.Fatal(err)
		}
		if again := l.subs.complaint() != nil; again != (want > 0) {
			t.Errorf("%s: reported on the next connection: %v", line, again)
		}
	}
}
