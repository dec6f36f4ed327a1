package script

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
)

const (
	counterKey  = "t:tally"
	counterMark = "{t:tally}:pawl:11111111-2222-4333-8444-555555555555"
	counterWake = "redisson_sc:{t:tally}"
)

// ops are operations as they are written: a2 r1.
func ops(text string) (list []CounterOp) {
	for _, word := range strings.Fields(text) {
		op := CounterOp{What: word[0]}
		_, _ = fmt.Sscanf(word[1:], "%d", &op.N)
		list = append(list, op)
	}
	return list
}

func counter(number uint64, text string) func([]byte, resp.ScriptForm) []byte {
	return func(b []byte, f resp.ScriptForm) []byte {
		return AppendCounter(b, f, &CounterCall{Key: counterKey, Mark: MarkOf(counterKey, me.Engine), Number: number, Channel: counterWake, Verb: "PUBLISH", Ops: ops(text)})
	}
}

// codes are the answers to a call.
func (c *caller) codes(number uint64, text string) string {
	c.t.Helper()
	v, err := c.run(counter(number, text))
	if err != nil {
		c.t.Fatalf("%d %s: %v", number, text, err)
	}
	if v.Kind != wire.KindArray {
		return fmt.Sprint(v.Int)
	}
	var list []string
	v.Each(func(_ int, e resp.Value) bool { list = append(list, fmt.Sprint(e.Int)); return true })
	return strings.Join(list, " ")
}

// countOf is what a key has, "" if it is not there.
func countOf(s *redistest.Server) string {
	text, _ := s.Do("GET", counterKey).(string)
	return text
}

func TestCounterEveryOperation(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	heard := c.listen(counterWake)
	for _, row := range []struct {
		before, ops  string // "": no key
		answer, left string
		messages     string
	}{
		{"", "a1", "0 1", "", ""},
		{"3", "a2", "1 1", "1", ""},
		{"3", "a3", "1 1", "0", ""},
		{"3", "a4", "0 1", "3", ""},
		{"3", "a4 a1", "0 0 1", "3", ""}, // nobody overtakes
		{"3", "a4 t1", "0 0 1", "3", ""},
		{"3", "t4 t2 t1 t1", "0 1 1 0 1", "0", ""}, // who does not wait is in nobody's way
		{"3", "t4 a4 t1 a1", "0 0 0 0 1", "3", ""},
		{"3", "a1 a1 a1 a1 a1", "1 1 1 0 0 1", "0", ""},
		{"", "r2", "1 1", "2", "2"},
		{"0", "r1", "1 1", "1", "1"},
		{"-5", "r1", "1 1", "-4", ""}, // a negative message throws in Java
		{"4", "r1 r2", "1 1 1", "7", "7"},
		{"0", "r1 a1", "1 1 1", "0", ""}, // nobody is woken for nothing
		{"", "r1 a1", "1 1 1", "0", ""},
		{"0", "r3 a1", "1 1 1", "2", "2"},
		{"0", "r1 a2", "1 0 1", "1", "1"},
		{"2147483647", "r1", "1 1", "2147483648", "2147483647"},
		{"", "p5", "1 1", "5", "5"},
		{"5", "p-7", "1 1", "-2", ""},
		{"5", "p-1", "1 1", "4", ""},
		{"-2", "p2", "1 1", "0", ""},
		{"", "s3", "1 1", "3", "3"},
		{"0", "s3", "0 1", "0", ""},
		{"", "s0", "1 1", "0", ""},
		{"4", "d", "4 1", "0", ""},
		{"-4", "d", "-4 1", "0", ""},
		{"", "d", "0 1", "", ""},
		{"3", "c", "1 1", "2", ""},
		{"1", "c", "1 1", "", "0"},
		{"2", "c c c", "1 1 1 1", "", "0"},
		{"0", "c", "1 1", "", ""},
		{"", "c", "1 1", "", ""},
		{"", "l2", "1 1", "2", "1"},
		{"2", "l5", "0 1", "2", ""},
		{"1", "c l1 c v", "1 1 1 0 1", "", "0 1 0"},
		{"7", "v", "7 1", "7", ""},
		{"-7", "v", "-7 1", "-7", ""},
		{"", "v", "0 1", "", ""},
	} {
		c.s.Do("FLUSHALL")
		if row.before != "" {
			c.s.Do("SET", counterKey, row.before)
		}
		if got := c.codes(1, row.ops); got != row.answer {
			t.Errorf("%q, %s: answers %s, want %s", row.before, row.ops, got, row.answer)
		}
		if got := countOf(c.s); got != row.left {
			t.Errorf("%q, %s: %q is left, want %q", row.before, row.ops, got, row.left)
		}
		if got := heard(); got != row.messages {
			t.Errorf("%q, %s: messages %q, want %q", row.before, row.ops, got, row.messages)
		}
		if ttl := c.s.Do("PTTL", counterMark).(int64); ttl < 50_000 || ttl > 60_000 {
			t.Errorf("%q, %s: the mark has %d ms", row.before, row.ops, ttl)
		}
		// A copy of it is answered the same and does nothing.
		if got := c.codes(1, row.ops); got != row.answer || countOf(c.s) != row.left || heard() != "" {
			t.Errorf("%q, %s, again: answers %s, %q is left", row.before, row.ops, got, countOf(c.s))
		}
	}
}

// listener hears a channel.
type listener struct {
	channel resp.Channel
	heard   chan string
}

func (e *listener) ChannelEvent(ev resp.ChannelEvent, message []byte, _ error) {
	switch ev {
	case resp.Subscribed:
		e.heard <- "on"
	case resp.Message:
		e.heard <- string(message)
	}
}

// listen returns what tells what was said on a channel since it was called last.
func (c *caller) listen(channel string) func() string {
	e := &listener{heard: make(chan string, 100)}
	e.channel.Init(channel, e)
	c.c.Subscribe(&e.channel)
	until := func(end string) string {
		var all []string
		for {
			select {
			case m := <-e.heard:
				if m == end {
					return strings.Join(all, " ")
				}
				all = append(all, m)
			case <-time.After(10 * time.Second):
				c.t.Fatal("nothing is heard")
			}
		}
	}
	until("on")
	return func() string {
		c.s.Do("PUBLISH", channel, "end")
		return until("end")
	}
}

func TestCounterLaterAndEarlierCommands(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	for _, step := range []struct {
		number uint64
		ops    string
		answer string
		left   string
	}{
		{5, "s10", "1 1", "10"},
		{6, "a3 v", "1 7 1", "7"},
		{5, "s10", "-6", "7"},       // a copy from a buffer
		{6, "a3 v", "1 7 1", "7"},   // it was executed
		{7, "a9", "0 1", "7"},       // refused
		{8, "r5", "1 1", "12"},      //
		{7, "a9", "-6", "12"},       // it stays refused
		{0, "v", "12 1", "12"},      // a look needs no mark
		{9, "a1 a1", "1 1 1", "10"}, //
		{9, "a1 a1", "1 1 1", "10"}, //
	} {
		if got := c.codes(step.number, step.ops); got != step.answer || countOf(c.s) != step.left {
			t.Errorf("%d %s: %s, %s is left; want %s, %s", step.number, step.ops, got, countOf(c.s), step.answer, step.left)
		}
	}
	// Another engine has a mark of its own.
	if v, err := c.run(func(b []byte, f resp.ScriptForm) []byte {
		return AppendCounter(b, f, &CounterCall{Key: counterKey, Mark: MarkOf(counterKey, other.Engine), Number: 1, Channel: counterWake, Verb: "PUBLISH", Ops: ops("a1")})
	}); err != nil || v.Len() != 2 || countOf(c.s) != "9" {
		t.Errorf("%v %v, %s is left", v, err, countOf(c.s))
	}
}

func TestCounterLooksWithoutAMark(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	c.s.Do("SET", counterKey, "4")
	if got := c.codes(0, "v"); got != "4 1" {
		t.Error(got)
	}
	if v := c.s.Do("EXISTS", counterMark); v != int64(0) {
		t.Error("a look left a mark")
	}
}

// What is no count is refused, and the refusal is remembered: an early copy must not be
// executed when the key has gone.
func TestCounterOfWhatIsNoCount(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	for i, put := range [][]string{{"HSET", counterKey, "a", "1"}, {"SET", counterKey, "text"}, {"SET", counterKey, "1.5"}, {"SET", counterKey, ""}, {"SET", counterKey, "9223372036854775807"}} {
		number := uint64(i + 1)
		c.s.Do("DEL", counterKey)
		c.s.Do(put...)
		if got := c.codes(number, "r1"); got != "-4" {
			t.Errorf("%q: %s", put, got)
		}
		if got := c.codes(0, "v"); got != "-4" {
			t.Errorf("%q: a look: %s", put, got)
		}
		c.s.Do("DEL", counterKey)
		if got := c.codes(number, "r1"); got != "-4" || countOf(c.s) != "" {
			t.Errorf("%q: %s later, %q", put, got, countOf(c.s))
		}
	}
}

// As in Redisson, what sets a count drops its expiry, and what changes it does not.
func TestCounterExpiries(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	for i, text := range []string{"a1", "r1", "c", "r1 a1", "v", "p1", "d", "p1 a1"} {
		c.s.Do("SET", counterKey, "5", "PX", "100000")
		c.codes(uint64(i+1), text)
		dropped := c.s.Do("PTTL", counterKey) == int64(-1)
		if want := strings.ContainsAny(text, "pd"); dropped != want {
			t.Errorf("%s: the expiry is dropped: %v", text, dropped)
		}
	}
}

// A server without memory refuses what takes, and leaves everything untouched; it does not
// refuse what gives back.
func TestCounterWithoutMemory(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	number := uint64(0)
	for _, row := range []struct{ ops, left string }{
		{"a1", ""}, {"s1", ""}, {"p1", ""}, {"d", ""}, {"l4", ""},
		{"r1", "6"}, {"c", "4"}, {"r1 a2", "4"}, {"c c c c c", "gone"},
	} {
		c.s.Do("FLUSHALL")
		c.s.Do("SET", counterKey, "5")
		c.s.Do("CONFIG", "SET", "maxmemory", "1")
		number++
		_, err := c.run(counter(number, row.ops))
		c.s.Do("CONFIG", "SET", "maxmemory", "0")
		var refused *resp.ServerError
		switch {
		case row.left == "":
			if !errors.As(err, &refused) || refused.Code != "OOM" || countOf(c.s) != "5" || c.s.Do("EXISTS", counterMark) != int64(0) {
				t.Errorf("%s: %v, %s", row.ops, err, countOf(c.s))
			}
		case row.left == "gone":
			row.left = ""
			fallthrough
		default:
			if err != nil || countOf(c.s) != row.left {
				t.Errorf("%s: %v, %q is left", row.ops, err, countOf(c.s))
			}
		}
	}
}

// A user who may not write the count, or the mark, changes nothing, and is executed once when
// the right is there. A refused message costs nobody the release.
func TestCounterWithoutRights(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	user := func(rules ...string) {
		c.s.Do(slices.Concat([]string{"ACL", "SETUSER", "default", "reset", "on", "nopass", "~*", "&*", "+@all"}, rules)...)
	}
	t.Cleanup(func() { user() })
	number := uint64(10)
	known, _ := c.s.Do("COMMAND", "INFO", "spublish").([]any)
	readOnly := len(known) == 1 && known[0] != nil
	if !readOnly {
		t.Log("this server is older than Redis 7.0 and has no right to read alone: that is left out")
	}
	for _, row := range []struct{ before, without, ops string }{
		{"5", "-incrby", "r1"}, {"5", "-incrby", "a1"}, {"", "-set", "r1"}, {"1", "-del", "c"}, {"5", "-set", "p1"},
		{"5", "%R~" + counterKey, "r1"}, {"5", "-get", "r1"},
	} {
		if strings.HasPrefix(row.without, "%") && !readOnly {
			continue
		}
		for _, before := range []string{"", "9 1 1"} {
			number++
			c.s.Do("FLUSHALL")
			if row.before != "" {
				c.s.Do("SET", counterKey, row.before)
			}
			if before != "" {
				c.s.Do("SET", counterMark, before)
			}
			if rules := []string{row.without}; strings.HasPrefix(row.without, "%") {
				user("resetkeys", row.without, "~"+counterMark, "~other*")
			} else {
				user(rules...)
			}
			_, err := c.run(counter(number, row.ops))
			user()
			if err == nil {
				t.Errorf("%s, %s: no error", row.without, row.ops)
			}
			if got := countOf(c.s); got != row.before {
				t.Errorf("%s, %s: %q is left of %q", row.without, row.ops, got, row.before)
			}
			if got := c.codes(number, row.ops); got != "1 1" || countOf(c.s) == row.before {
				t.Errorf("%s, %s: then %s, %q", row.without, row.ops, got, countOf(c.s))
			}
		}
	}
	user("resetchannels")
	if got := c.codes(99, "r1"); got != "1 2" {
		t.Errorf("a message was refused: %s", got)
	}
}

// No two names have one mark.
func TestMarksFollowRedissonsBraceRule(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"a": "{a}:pawl:e", "{a}": "{a}:pawl::e", "a{b}": "a{b}:pawl::e", "a}b": "{a}b}:pawl:e"} {
		if got := MarkOf(name, "e"); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

// The mark is gone after a minute.
func TestCounterMarkExpires(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	c.codes(3, "s1")
	c.s.Do("PEXPIRE", counterMark, "1")
	for deadline := time.Now().Add(5 * time.Second); c.s.Do("EXISTS", counterMark) != int64(0) && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond) // a poll
	}
	if got := c.codes(2, "a1"); got != "1 1" {
		t.Error(got)
	}
}

// A latch that opens and is closed again has no expiry, as if it were done one by one.
func TestALatchThatIsClosedAgainHasNoExpiry(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	for i, text := range []string{"c l5", "c l1"} {
		c.s.Do("SET", counterKey, "1", "PX", "100000")
		got := c.codes(uint64(i+1), text)
		if left := c.s.Do("PTTL", counterKey); left != int64(-1) {
			t.Errorf("%s: %s, %v ms left", text, got, left)
		}
	}
}

// Without memory, too, a release of what is no count is told so.
func TestAReleaseOfNoCountWithoutMemory(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	c.s.Do("SET", counterKey, "text")
	c.s.Do("CONFIG", "SET", "maxmemory", "1")
	for _, what := range []string{"it is sent", "it is repeated"} {
		if v, err := c.run(counter(1, "r1")); err != nil || v.Int != WrongType {
			t.Errorf("%s: %d, %v", what, v.Int, err)
		}
	}
	var refused *resp.ServerError
	if _, err := c.run(counter(2, "a1")); !errors.As(err, &refused) || refused.Code != "OOM" {
		t.Errorf("an acquire: %v, want OOM", err)
	}
}
