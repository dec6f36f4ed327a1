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

func fenced(o Owner, lease time.Duration) func([]byte, resp.ScriptForm) []byte {
	return func(b []byte, f resp.ScriptForm) []byte { return AppendFenced(b, f, lockName, o, lease) }
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

func relay(b []byte, f resp.ScriptForm) []byte {
	return AppendSeveral(b, f, lockName, []Owner{other}, me, 9*time.Second, true, wake)
}

// It releases the other and takes the lock for me, as a grant of its own.
func TestSeveral_WithACounter_CountsTheGrant(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	mine := me.String()
	for _, x := range []struct {
		state   string
		answers []int64 // anyTTL: what the key has left
		holders []any
	}{
		{"others", []int64{Done, Granted, 42}, []any{mine}},
		{"others, no expiry", []int64{Done, Granted, 42}, []any{mine}},
		{"absent", []int64{NotThere, Granted, 42}, []any{mine}},
		{"me", []int64{NotThere, Granted, 41}, []any{mine}},        // a copy of what was executed
		{"me and others", []int64{Done, Granted, 41}, []any{mine}}, // the same, and the other again
		{"a third", []int64{NotThere, anyTTL}, []any{nobody.String()}},
	} {
		c.s.Do("FLUSHALL")
		c.s.Do("SET", counterName, "41")
		if prepare := states[x.state]; prepare != nil {
			prepare(c.s)
		} else {
			c.s.Do("HSET", lockName, nobody.String(), "1")
			c.s.Do("PEXPIRE", lockName, "5000")
		}
		v, err := c.run(relay)
		if err != nil || v.Kind != wire.KindArray {
			t.Fatalf("%s: %v, %v", x.state, v, err)
		}
		var got []int64
		v.Each(func(_ int, e resp.Value) bool { got = append(got, e.Int); return true })
		if got[1] > 4000 && got[1] <= 5000 {
			got[1] = anyTTL
		}
		if !slices.Equal(got, x.answers) {
			t.Errorf("%s: answers %v, want %v", x.state, got, x.answers)
		}
		if is, _ := c.s.Do("HKEYS", lockName).([]any); !slices.Equal(is, x.holders) {
			t.Errorf("%s: held by %v, want %v", x.state, is, x.holders)
		}
		if left := c.s.Do("PTTL", lockName).(int64); got[1] == Granted && (left < 8000 || left > 9000) {
			t.Errorf("%s: %d ms left", x.state, left)
		}
	}
}

// A server without memory lets it all pass: the release makes room. If anything else is refused,
// the other is released, and nobody has taken the lock.
func TestSeveral_WithACounterThatIsRefused_HasReleased(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	for what, x := range map[string]struct {
		before, after []string
		taken         bool
	}{
		"no memory":         {[]string{"CONFIG", "SET", "maxmemory", "1"}, []string{"CONFIG", "SET", "maxmemory", "0"}, true},
		"no right to count": {[]string{"ACL", "SETUSER", "default", "-incr"}, []string{"ACL", "SETUSER", "default", "+incr"}, false},
		"no right to end":   {[]string{"ACL", "SETUSER", "default", "-pexpire"}, []string{"ACL", "SETUSER", "default", "+pexpire"}, false},
		"a list":            {[]string{"RPUSH", counterName, "x"}, []string{"DEL", counterName}, false},
	} {
		c.s.Do("FLUSHALL")
		states["others"](c.s)
		c.s.Do(x.before...)
		v, err := c.run(relay)
		c.s.Do(x.after...)
		var own wire.Kind
		var codes []int64
		v.Each(func(i int, e resp.Value) bool {
			codes = append(codes, e.Int)
			if i == 1 {
				own = e.Kind
			}
			return true
		})
		var holders []any
		if x.taken {
			holders = []any{me.String()}
		}
		is, _ := c.s.Do("HKEYS", lockName).([]any)
		if err != nil || len(codes) < 2 || codes[0] != Done || (own == wire.KindInt) != x.taken || !slices.Equal(is, holders) {
			t.Errorf("%s: %v, held by %v, %v", what, codes, is, err)
		}
	}
}
