package script

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
)

const lockName = "t:lock"

var (
	me     = Owner{Engine: "11111111-2222-4333-8444-555555555555", ID: 7}
	other  = Owner{Engine: "99999999-2222-4333-8444-555555555555", ID: 8}
	nobody = Owner{Engine: me.Engine, ID: -7}
	wake   = Channel{Prefix: "redisson_lock__channel", Lock: lockName, Verb: "PUBLISH"}
)

// caller runs script calls on a real server.
type caller struct {
	t testing.TB
	c *resp.Client
	s *redistest.Server
}

type call struct {
	encode func([]byte, resp.ScriptForm) []byte
	value  resp.Value
	err    error
	done   chan struct{}
}

func (c *call) AppendCommand(dst []byte, f resp.ScriptForm) []byte { return c.encode(dst, f) }
func (c *call) Complete(r resp.Reply) {
	c.value, c.err = r.Value.Clone(), r.Err
	close(c.done)
}

func newCaller(t testing.TB) *caller {
	t.Helper()
	s := redistest.Start(t)
	c := resp.Open(resp.Config{Addr: s.Addr(), Scripts: Texts()})
	t.Cleanup(func() { _ = c.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := c.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	return &caller{t, c, s}
}

func (c *caller) run(encode func([]byte, resp.ScriptForm) []byte) (resp.Value, error) {
	q := &call{encode: encode, done: make(chan struct{})}
	c.c.Submit(0, q)
	<-q.done
	return q.value, q.err
}

func acquire(o Owner, lease time.Duration) func([]byte, resp.ScriptForm) []byte {
	return func(b []byte, f resp.ScriptForm) []byte { return AppendAcquire(b, f, lockName, o, lease) }
}
func reenter(o Owner, lease time.Duration, n int) func([]byte, resp.ScriptForm) []byte {
	return func(b []byte, f resp.ScriptForm) []byte { return AppendReenter(b, f, lockName, o, lease, n) }
}
func leave(o Owner, n int) func([]byte, resp.ScriptForm) []byte {
	return func(b []byte, f resp.ScriptForm) []byte { return AppendLeave(b, f, lockName, o, n) }
}
func release(o Owner) func([]byte, resp.ScriptForm) []byte {
	return func(b []byte, f resp.ScriptForm) []byte { return AppendRelease(b, f, lockName, o, wake) }
}
func retire(o Owner, rest time.Duration) func([]byte, resp.ScriptForm) []byte {
	return func(b []byte, f resp.ScriptForm) []byte { return AppendRetire(b, f, lockName, o, nobody, rest, wake) }
}
func renew(o Owner, lease time.Duration) func([]byte, resp.ScriptForm) []byte {
	return func(b []byte, f resp.ScriptForm) []byte {
		return AppendRenew(b, f, []Renewal{{lockName, o, lease}})
	}
}
func several(lease time.Duration, taker Owner, released ...Owner) func([]byte, resp.ScriptForm) []byte {
	return func(b []byte, f resp.ScriptForm) []byte {
		return AppendSeveral(b, f, lockName, released, taker, lease, false, wake)
	}
}
func force(owner string) func([]byte, resp.ScriptForm) []byte {
	return func(b []byte, f resp.ScriptForm) []byte { return AppendForce(b, f, lockName, owner, wake) }
}

// The four states of the lock that the table of promise 3 names, prepared on the
// server by hand.
var states = map[string]func(s *redistest.Server){
	"absent": func(s *redistest.Server) {},
	"me": func(s *redistest.Server) {
		s.Do("HSET", lockName, me.String(), "1")
		s.Do("PEXPIRE", lockName, "5000")
	},
	"me and others": func(s *redistest.Server) {
		s.Do("HSET", lockName, me.String(), "1", other.String(), "1")
		s.Do("PEXPIRE", lockName, "5000")
	},
	"others": func(s *redistest.Server) {
		s.Do("HSET", lockName, other.String(), "3")
		s.Do("PEXPIRE", lockName, "5000")
	},
	"others, no expiry": func(s *redistest.Server) { s.Do("HSET", lockName, other.String(), "3") },
	"me, no expiry":     func(s *redistest.Server) { s.Do("HSET", lockName, me.String(), "1") },
}

// after is what a call must answer and leave behind.
type after struct {
	reply    int64  // anyTTL: what the key of the state has left
	mine     string // my field afterwards; "" none
	minTTL   int64
	maxTTL   int64
	messages int64
}

const anyTTL = 1 << 40

func TestDecisionTableEveryCell(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	const s9 = 9 * time.Second
	same := func(reply int64, mine string) after { return after{reply, mine, 4000, 5000, 0} }
	raised := func(mine string) after { return after{Granted, mine, 8000, 9000, 0} }
	noTTL := func(reply int64, mine string) after { return after{reply, mine, -1, -1, 0} }
	free := func(reply, messages int64) after { return after{reply, "", -2, -2, messages} }

	table := []struct {
		name   string
		encode func([]byte, resp.ScriptForm) []byte
		want   map[string]after
	}{
		{"acquire", acquire(me, s9), map[string]after{
			"absent": raised("1"), "me": raised("1"), "me and others": raised("1"), "me, no expiry": raised("1"),
			"others": same(anyTTL, ""), "others, no expiry": noTTL(NoExpiry, ""),
		}},
		{"acquire with a lease below what is left", acquire(me, time.Second), map[string]after{
			"absent": {Granted, "1", 900, 1000, 0}, "me": {Granted, "1", 4000, 5000, 0}, "me and others": {Granted, "1", 4000, 5000, 0},
			"others": same(anyTTL, ""),
		}},
		{"re-enter", reenter(me, s9, 2), map[string]after{
			"absent": free(NotThere, 0), "me": raised("2"), "me and others": raised("2"), "me, no expiry": raised("2"),
			"others": same(NotThere, ""), "others, no expiry": noTTL(NotThere, ""),
		}},
		{"re-enter with a lease below what is left", reenter(me, time.Second, 5), map[string]after{
			"me": {Granted, "5", 4000, 5000, 0},
		}},
		{"leave", leave(me, 4), map[string]after{
			"absent": free(NotThere, 0), "me": same(StillHeld, "4"), "me and others": same(StillHeld, "4"),
			"others": same(NotThere, ""), "others, no expiry": noTTL(NotThere, ""),
		}},
		{"release", release(me), map[string]after{
			"absent": free(NotThere, 0), "me": free(Done, 1), "me and others": {Done, "", 4000, 5000, 1},
			"others": same(NotThere, ""), "others, no expiry": noTTL(NotThere, ""),
		}},
		{"retire", retire(me, 2*time.Second), map[string]after{
			"absent": free(NotThere, 0), "me": {Done, "", 1000, 2000, 1}, "me, no expiry": {Done, "", 1000, 2000, 1},
			"others": same(NotThere, ""), "others, no expiry": noTTL(NotThere, ""),
		}},
		{"renew", renew(me, s9), map[string]after{
			"absent": free(Gone, 0), "me": {Renewed, "1", 8000, 9000, 0}, "me and others": {Renewed, "1", 8000, 9000, 0},
			"me, no expiry": {Renewed, "1", 8000, 9000, 0},
			"others":        same(Gone, ""), "others, no expiry": noTTL(Gone, ""),
		}},
		{"renew with a lease below what is left", renew(me, time.Second), map[string]after{
			"me": {Renewed, "1", 4000, 5000, 0},
		}},
		{"several releases", several(0, nobody, me), map[string]after{
			"absent": free(NotThere, 0), "me": free(Done, 1), "me and others": {Done, "", 4000, 5000, 1},
			"others": same(NotThere, ""), "others, no expiry": noTTL(NotThere, ""),
		}},
		{"release others and acquire", several(s9, me, nobody, other), map[string]after{
			"absent": raised("1"), "me": raised("1"), "me and others": raised("1"), "me, no expiry": raised("1"),
			"others": raised("1"), "others, no expiry": raised("1"),
		}},
		{"release me and acquire", several(s9, nobody, me), map[string]after{
			"absent": {Granted, "", 8000, 9000, 0}, "me": {Granted, "", 8000, 9000, 0}, "me and others": {anyTTL, "", 4000, 5000, 1},
			"others": same(anyTTL, ""), "others, no expiry": noTTL(NoExpiry, ""),
		}},
		{"acquire with a lease below what is left, again", several(time.Second, me, nobody), map[string]after{
			"absent": {Granted, "1", 900, 1000, 0}, "me": {Granted, "1", 4000, 5000, 0}, "others": same(anyTTL, ""),
		}},
		{"force any", force(""), map[string]after{
			"absent": free(0, 0), "me": free(Done, 1), "me and others": free(Done, 1),
			"others": free(Done, 1), "others, no expiry": free(Done, 1),
		}},
		{"force me", force(me.String()), map[string]after{
			"absent": free(0, 0), "me": free(Done, 1), "me and others": free(Done, 1),
			"others": same(0, ""), "others, no expiry": noTTL(0, ""),
		}},
	}
	for _, row := range table {
		for state, want := range row.want {
			t.Run(row.name+"/"+state, func(t *testing.T) {
				c.s.Do("DEL", lockName)
				states[state](c.s)
				before := c.s.CommandStats()["publish"]
				v, err := c.run(row.encode)
				if err != nil {
					t.Fatal(err)
				}
				got := v.Int
				if v.Kind == wire.KindArray {
					v.Each(func(_ int, e resp.Value) bool {
						if e.Kind == wire.KindInt { // or who has the lock
							got = e.Int
						}
						return true
					})
				}
				if want.reply == anyTTL {
					if got < 4000 || got > 5000 {
						t.Fatalf("reply %d, want the 5 s that are left", got)
					}
				} else if got != want.reply {
					t.Fatalf("reply %d, want %d", got, want.reply)
				}
				mine, _ := c.s.Do("HGET", lockName, me.String()).(string)
				if mine != want.mine {
					t.Errorf("my field is %q, want %q", mine, want.mine)
				}
				if ttl := c.s.Do("PTTL", lockName).(int64); ttl < want.minTTL || ttl > want.maxTTL {
					t.Errorf("PTTL is %d, want %d to %d", ttl, want.minTTL, want.maxTTL)
				}
				if n := c.s.CommandStats()["publish"] - before; n != want.messages {
					t.Errorf("%d messages, want %d", n, want.messages)
				}
			})
		}
	}
}

func TestEveryScriptRefusesAForeignTypeWithoutTouchingIt(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	c.s.Do("SET", lockName, "another library's lock")
	calls := maps.Clone(rwCalls)
	maps.Copy(calls, map[string]encoder{
		"acquire": acquire(me, time.Second), "reenter": reenter(me, time.Second, 2), "leave": leave(me, 1),
		"release": release(me), "retire": retire(me, time.Second), "force": force(""),
		"several": several(time.Second, me, other),
	})
	for name, encode := range calls {
		if _, err := c.run(encode); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("%s: %v, want WRONGTYPE", name, err)
		}
	}
	for name, encode := range map[string]encoder{"renew": renew(me, time.Second), "readrenew": readRenew(me, time.Second)} {
		v, err := c.run(encode)
		if err != nil {
			t.Fatal(err)
		}
		v.Each(func(_ int, e resp.Value) bool {
			if e.Int != WrongType {
				t.Errorf("%s: %d, want %d", name, e.Int, WrongType)
			}
			return true
		})
	}
	if v := c.s.Do("GET", lockName); v != "another library's lock" {
		t.Errorf("the key is %v now", v)
	}
}

func TestOneForeignKeyAmongManyCostsTheOthersNothing(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	var list []Renewal
	for i := range 64 {
		key := fmt.Sprintf("k%d", i)
		if i == 31 {
			c.s.Do("SET", key, "string")
		} else {
			c.s.Do("HSET", key, me.String(), "1")
			c.s.Do("PEXPIRE", key, "8000")
		}
		list = append(list, Renewal{key, me, 9 * time.Second})
	}
	v, err := c.run(func(b []byte, f resp.ScriptForm) []byte { return AppendRenew(b, f, list) })
	if err != nil || v.Len() != 64 {
		t.Fatalf("%v %v", v, err)
	}
	v.Each(func(i int, e resp.Value) bool {
		want := int64(Renewed)
		if i == 31 {
			want = WrongType
		}
		if e.Int != want {
			t.Errorf("key %d: %d, want %d", i, e.Int, want)
		}
		return true
	})
}

func TestBothFormsSayTheSame(t *testing.T) {
	t.Parallel()
	for _, s := range all {
		if !strings.Contains("\n"+s.Text, "\n-- "+s.Name+":") {
			t.Errorf("%s.lua does not begin with its name", s.Name)
		}
		short, whole := s.call(nil, resp.EvalSHA, 1, 2), s.call(nil, resp.Eval, 1, 2)
		if !bytes.Contains(short, []byte(s.SHA)) || !bytes.Contains(whole, []byte(s.Text)) {
			t.Errorf("%s: forms are mixed up", s.Name)
		}
	}
}

func TestChannelNameFollowsRedissonsBraceRule(t *testing.T) {
	t.Parallel()
	for lock, want := range map[string]string{
		"orders": "p:{orders}", "a{b}c": "p:a{b}c", "{x}": "p:{x}", "a}b": "p:{a}b}", "a{b": "p:a{b",
	} {
		if got := (Channel{Prefix: "p", Lock: lock}).Name(); got != want {
			t.Errorf("%q: %q, want %q", lock, got, want)
		}
	}
}

func TestLeaseIsRoundedUpToTheMillisecond(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]int64{
		time.Nanosecond: 1, time.Millisecond: 1, time.Millisecond + 1: 2, 30 * time.Second: 30000,
	} {
		if got := Milliseconds(d); got != want {
			t.Errorf("%v: %d, want %d", d, got, want)
		}
	}
}

// A server that has been made a replica may be empty for a moment, when it is filled
// anew, while a connection to it is still open. What it does not have is not gone.
func TestOnlyAPrimarySaysThatAHoldIsGone(t *testing.T) {
	t.Parallel()
	r := redistest.StartReplicated(t, 1)
	replica := r.Servers()[1]
	c := resp.Open(resp.Config{Addr: replica.Addr(), Scripts: Texts()})
	t.Cleanup(func() { _ = c.Close() })
	at := &caller{t, c, replica}
	calls := maps.Clone(rwCalls)
	maps.Copy(calls, map[string]encoder{
		"acquire": acquire(me, time.Minute), "reenter": reenter(me, time.Minute, 2), "leave": leave(me, 1),
		"release": release(me), "retire": retire(me, time.Second), "force": force(""), "force, if held by me": force(me.String()),
		"renew": renew(me, time.Minute), "several": several(time.Minute, me, other),
		"readrenew": readRenew(me, time.Minute),
		"fair":      fair(queue(true), true), "fairrelease": fairRelease(queue(true), 0), "fairrelease, for a while": fairRelease(queue(true), time.Second),
		"fairforce": fairForce(queue(true), ""), "fairforce, if held by me": fairForce(queue(true), me.String()),
	})
	for name, encode := range calls {
		v, err := at.run(encode)
		// Each refusal makes the client connect anew, and then it has no connection.
		for deadline := time.Now().Add(10 * time.Second); errors.Is(err, resp.ErrNotSent) && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond) // a poll
			v, err = at.run(encode)
		}
		var refused *resp.ServerError
		if !errors.As(err, &refused) || refused.Code != "READONLY" {
			t.Errorf("%s: %+v, %v, want READONLY", name, v, err)
		}
	}
}
