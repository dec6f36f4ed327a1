package script

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
)

const counterName = "redisson_lock_token:{" + lockName + "}"

func fenced(o Owner, lease time.Duration) func([]byte, resp.Form) []byte {
	return func(b []byte, f resp.Form) []byte { return AppendFenced(b, f, lockName, o, lease) }
}

func TestFencedCountsGrantsAndNothingElse(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	for _, x := range []struct {
		state       string
		code, token int64 // code anyTTL: what the key has left
		mine        any
		counted     string
	}{
		{"absent", Granted, 42, "1", "42"},
		{"me", Granted, 41, "1", "41"},
		{"me, no expiry", Granted, 41, "1", "41"},
		{"me and others", Granted, 41, "1", "41"},
		{"others", anyTTL, 0, nil, "41"},
		{"others, no expiry", NoExpiry, 0, nil, "41"},
	} {
		c.s.Do("FLUSHALL")
		c.s.Do("SET", counterName, "41")
		states[x.state](c.s)
		v, err := c.run(fenced(me, 9*time.Second))
		if err != nil || v.Kind != wire.KindArray || v.Len() != 2 {
			t.Fatalf("%s: %v, %v", x.state, v, err)
		}
		var got []int64
		v.Each(func(_ int, e resp.Value) bool { got = append(got, e.Int); return true })
		if x.code == anyTTL && got[0] > 4000 && got[0] <= 5000 {
			got[0] = anyTTL
		}
		if got[0] != x.code || got[1] != x.token {
			t.Errorf("%s: answers %v, want %d and %d", x.state, got, x.code, x.token)
		}
		if is := c.s.Do("HGET", lockName, me.String()); is != x.mine {
			t.Errorf("%s: my field is %v, want %v", x.state, is, x.mine)
		}
		if is := c.s.Do("GET", counterName); is != x.counted {
			t.Errorf("%s: the counter is %v, want %s", x.state, is, x.counted)
		}
		if left := c.s.Do("PTTL", lockName).(int64); x.code == Granted && (left < 8000 || left > 9000) {
			t.Errorf("%s: %d ms left", x.state, left)
		}
	}
	c.s.Do("DEL", lockName, counterName)
	if _, err := c.run(fenced(me, time.Second)); err != nil || c.s.Do("GET", counterName) != "1" || c.s.Do("PTTL", counterName) != int64(-1) {
		t.Errorf("the first token is %v, %v left, %v", c.s.Do("GET", counterName), c.s.Do("PTTL", counterName), err)
	}
}

// A server without memory, a user without a right, a counter of another type: nothing is locked.
func TestFencedThatIsRefusedLocksNothing(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	for what, x := range map[string]struct{ before, after []string }{
		"no memory":         {[]string{"CONFIG", "SET", "maxmemory", "1"}, []string{"CONFIG", "SET", "maxmemory", "0"}},
		"no right to count": {[]string{"ACL", "SETUSER", "default", "-incr"}, []string{"ACL", "SETUSER", "default", "+incr"}},
		"no right to end":   {[]string{"ACL", "SETUSER", "default", "-pexpire"}, []string{"ACL", "SETUSER", "default", "+pexpire"}},
		"a list":            {[]string{"RPUSH", counterName, "x"}, []string{"DEL", counterName}},
	} {
		c.s.Do("FLUSHALL")
		c.s.Do(x.before...)
		_, err := c.run(fenced(me, time.Second))
		c.s.Do(x.after...)
		var refused *resp.ServerError
		if !errors.As(err, &refused) {
			t.Errorf("%s: %v", what, err)
		}
		if left := c.s.Do("EXISTS", lockName); left != int64(0) {
			t.Errorf("%s: the lock is there", what)
		}
	}
}

func TestPassGivesTheLockFromOneToTheOther(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	mine := me.String()
	for _, x := range []struct {
		name    string
		state   string
		code    int64
		token   int64 // with a counter that is at 41
		holders []any
	}{
		{"the giver has it", "others", Granted, 42, []any{mine}},
		{"the giver has it without expiry", "others, no expiry", Granted, 42, []any{mine}},
		{"a copy of what was executed", "me", Granted, 41, []any{mine}},
		{"both are there", "me and others", Granted, 41, nil},
		{"neither is there", "absent", NotThere, 0, []any{}},
	} {
		for _, counts := range []bool{false, true} {
			c.s.Do("FLUSHALL")
			c.s.Do("SET", counterName, "41")
			states[x.state](c.s)
			v, err := c.run(func(b []byte, f resp.Form) []byte {
				return AppendPass(b, f, lockName, me, 9*time.Second, other, counts)
			})
			if err != nil || v.Kind != wire.KindArray || v.Len() != 2 {
				t.Fatalf("%s: %v, %v", x.name, v, err)
			}
			var got []int64
			v.Each(func(_ int, e resp.Value) bool { got = append(got, e.Int); return true })
			token := x.token
			if !counts {
				token = 0
			}
			if got[0] != x.code || got[1] != token {
				t.Errorf("%s, counts %v: answers %v, want %d and %d", x.name, counts, got, x.code, token)
			}
			if is, _ := c.s.Do("HKEYS", lockName).([]any); x.holders != nil && !slices.Equal(is, x.holders) {
				t.Errorf("%s: held by %v, want %v", x.name, is, x.holders)
			}
			if left := c.s.Do("PTTL", lockName).(int64); x.code == Granted && (left < 8000 || left > 9000) {
				t.Errorf("%s: %d ms left", x.name, left)
			}
		}
	}
}

// A server without memory lets a lock be passed on: that needs none. One that refuses anything
// else has changed nothing but the lease.
func TestPassThatIsRefusedChangesNobody(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	pass := func(b []byte, f resp.Form) []byte { return AppendPass(b, f, lockName, me, 9*time.Second, other, true) }
	for what, x := range map[string]struct {
		before, after []string
		passes        bool
	}{
		"no memory":         {[]string{"CONFIG", "SET", "maxmemory", "1"}, []string{"CONFIG", "SET", "maxmemory", "0"}, true},
		"no right to count": {[]string{"ACL", "SETUSER", "default", "-incr"}, []string{"ACL", "SETUSER", "default", "+incr"}, false},
		"no right to end":   {[]string{"ACL", "SETUSER", "default", "-pexpire"}, []string{"ACL", "SETUSER", "default", "+pexpire"}, false},
		"a list":            {[]string{"RPUSH", counterName, "x"}, []string{"DEL", counterName}, false},
	} {
		c.s.Do("FLUSHALL")
		states["others"](c.s)
		c.s.Do(x.before...)
		_, err := c.run(pass)
		c.s.Do(x.after...)
		want := other.String()
		if x.passes {
			want = me.String()
		}
		if is, _ := c.s.Do("HKEYS", lockName).([]any); len(is) != 1 || is[0] != want || (err == nil) != x.passes {
			t.Errorf("%s: held by %v, %v", what, is, err)
		}
	}
}
