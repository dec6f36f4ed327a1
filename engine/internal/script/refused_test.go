package script

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
)

// A server without memory refuses what takes a lock, and leaves it untouched; it does
// not refuse what gives one back.
func TestServerWithoutMemoryRefusesNoGivingBack(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	for _, x := range []struct {
		name   string
		state  string
		encode func([]byte, resp.ScriptForm) []byte
		want   int64 // 0: refused
		left   map[string]string
	}{
		{"acquire", "absent", acquire(me, time.Second), 0, nil},
		{"reenter", "me", reenter(me, time.Second, 2), 0, map[string]string{me.String(): "1"}},
		{"leave", "me", leave(me, 3), StillHeld, map[string]string{me.String(): "3"}},
		{"release", "me", release(me), Done, nil},
		{"retire", "me", retire(me, time.Second), Done, map[string]string{nobody.String(): "1"}},
		{"force", "me", force(""), Done, nil},
		{"several", "me", several(time.Second, nobody, me), Granted, map[string]string{nobody.String(): "1"}}, // what it gives back makes room
	} {
		c.s.Do("FLUSHALL")
		states[x.state](c.s)
		c.s.Do("CONFIG", "SET", "maxmemory", "1")
		v, err := c.run(x.encode)
		c.s.Do("CONFIG", "SET", "maxmemory", "0")
		var refused *resp.ServerError
		taking := x.name == "acquire" || x.name == "reenter"
		if v.Kind == wire.KindArray {
			v.Each(func(_ int, e resp.Value) bool { v = e; return true })
		}
		if taking != (errors.As(err, &refused) && refused.Code == "OOM") || !taking && (err != nil || v.Int != x.want) {
			t.Errorf("%s: %d, %v", x.name, v.Int, err)
		}
		left, _ := c.s.Do("HGETALL", lockName).([]any)
		if len(left) != 2*len(x.left) || len(left) == 2 && x.left[left[0].(string)] != left[1] {
			t.Errorf("%s left %v, want %v", x.name, left, x.left)
		}
	}
}

// A server that refuses every write says why, also if one of the keys is of another type.
func TestRenewalThatTheServerCannotWriteSaysWhy(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	c.s.Do("SET", "text", "1")
	states["me"](c.s)
	c.s.Do("CONFIG", "SET", "min-replicas-to-write", "1")
	list := []Renewal{{"text", me, time.Minute}, {lockName, me, time.Minute}, {"absent", me, time.Minute}}
	_, err := c.run(func(b []byte, f resp.ScriptForm) []byte { return AppendRenew(b, f, list) })
	var refused *resp.ServerError
	if !errors.As(err, &refused) || refused.Code != "NOREPLICAS" {
		t.Errorf("error is %v, want NOREPLICAS", err)
	}
}

// A right that is missing is named, too. But one that only the locks need that are gone does
// not cost the others their leases.
func TestRenewalThatTheUserMayNotWriteSaysWhy(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	list := []Renewal{{lockName, me, time.Minute}, {"absent", me, time.Minute}}
	for _, x := range []struct {
		command string
		named   bool
	}{{"hexists", true}, {"pttl", true}, {"pexpire", true}, {"hdel", false}} {
		states["me"](c.s)
		c.s.Do("ACL", "SETUSER", "default", "-"+x.command)
		v, err := c.run(func(b []byte, f resp.ScriptForm) []byte { return AppendRenew(b, f, list) })
		c.s.Do("ACL", "SETUSER", "default", "+@all")
		var refused *resp.ServerError
		if x.named != (errors.As(err, &refused) && refused.Code == "NOPERM") {
			t.Errorf("without %s: %v", x.command, err)
		}
		if !x.named {
			v.Each(func(i int, code resp.Value) bool {
				if want := []int64{Renewed, Refused}[i]; code.Int != want {
					t.Errorf("without %s lock %d has code %d, want %d", x.command, i, code.Int, want)
				}
				return true
			})
		}
	}
}

// A message that the server refuses costs nobody the release, and is reported.
func TestRefusedMessageIsReportedAndCostsNobodyTheRelease(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	known, _ := c.s.Do("COMMAND", "INFO", "spublish").([]any)
	sharded := len(known) == 1 && known[0] != nil
	if !sharded {
		t.Log("this server is older than Redis 7.0 and has no sharded messages: they are left out")
	}
	for _, x := range []struct {
		denied, verb string
		want         int64
	}{
		{"none", "PUBLISH", Done},
		{"publish", "PUBLISH", Unheard},
		{"spublish", "SPUBLISH", Unheard},
		{"publish", "SPUBLISH", Done},
		{"publish", "", Done},
	} {
		if !sharded && (x.denied == "spublish" || x.verb == "SPUBLISH") {
			continue
		}
		channel := wake
		channel.Verb = x.verb
		for name, encode := range map[string]func([]byte, resp.ScriptForm) []byte{
			"release": func(b []byte, f resp.ScriptForm) []byte { return AppendRelease(b, f, lockName, me, channel) },
			"retire": func(b []byte, f resp.ScriptForm) []byte {
				return AppendRetire(b, f, lockName, me, nobody, time.Second, channel)
			},
			"force": func(b []byte, f resp.ScriptForm) []byte { return AppendForce(b, f, lockName, "", channel) },
			"several": func(b []byte, f resp.ScriptForm) []byte {
				return AppendSeveral(b, f, lockName, []Owner{me}, nobody, 0, false, channel)
			},
		} {
			c.s.Do("FLUSHALL")
			states["me"](c.s)
			c.s.Do("ACL", "SETUSER", "default", "+@all")
			if x.denied != "none" {
				c.s.Do("ACL", "SETUSER", "default", "-"+x.denied)
			}
			v, err := c.run(encode)
			if v.Kind == wire.KindArray {
				v.Each(func(_ int, e resp.Value) bool { v = e; return true })
			}
			if err != nil || v.Int != x.want {
				t.Errorf("%s by %q without %s: %d, %v, want %d", name, x.verb, x.denied, v.Int, err, x.want)
			}
			if c.s.Do("HEXISTS", lockName, me.String()) != int64(0) {
				t.Errorf("%s by %q without %s left the owner there", name, x.verb, x.denied)
			}
		}
	}
}

// Whatever the user may not do, no lock stays without an expiry: nobody would end it.
func TestRefusedCommandLeavesNoLockForGood(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	for _, x := range []struct {
		name, state, denied string
		encode              func([]byte, resp.ScriptForm) []byte
		free                bool
	}{
		{"acquire", "absent", "pexpire", acquire(me, time.Minute), true},
		{"retire", "me", "pexpire", retire(me, time.Second), false},
		{"retire", "me", "hset", retire(me, time.Second), false},
		{"retire", "me", "hdel", retire(me, time.Second), false},
	} {
		c.s.Do("FLUSHALL")
		states[x.state](c.s)
		c.s.Do("ACL", "SETUSER", "default", "-"+x.denied)
		_, err := c.run(x.encode)
		c.s.Do("ACL", "SETUSER", "default", "+@all")
		var refused *resp.ServerError
		if !errors.As(err, &refused) || refused.Code != "NOPERM" {
			t.Errorf("%s without %s: %v", x.name, x.denied, err)
		}
		switch left := c.s.Do("PTTL", lockName).(int64); {
		case x.free && left != -2:
			t.Errorf("%s without %s: the lock is taken, with an expiry of %d", x.name, x.denied, left)
		case !x.free && left <= 0:
			t.Errorf("%s without %s: the lock has an expiry of %d", x.name, x.denied, left)
		}
	}
}

// A MinHold may be over by the time the server sets the expiry: PEXPIRE reads the clock twice
// up to Redis 7.0, and deletes the key if a rest of 1 ms is over the second time. A rest of 0
// is that always.
func TestRetireWhoseRestIsOverFreesTheLock(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	states["me"](c.s)
	if v, err := c.run(retire(me, 0)); err != nil || v.Int != Done {
		t.Errorf("retire: %d, %v", v.Int, err)
	}
	if left := c.s.Do("PTTL", lockName).(int64); left != -2 {
		t.Errorf("the lock is taken, with an expiry of %d", left)
	}
}

// What several does comes in an order, and what is refused costs nothing of what came before it.
func TestSeveralThatMayNotTakeHasReleased(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	for name, x := range map[string]struct {
		refuse, allow []string
		code          string
	}{
		"no right to pttl":   {[]string{"ACL", "SETUSER", "default", "-pttl"}, []string{"ACL", "SETUSER", "default", "+@all"}, "NOPERM"},
		"no right to hset":   {[]string{"ACL", "SETUSER", "default", "-hset"}, []string{"ACL", "SETUSER", "default", "+@all"}, "NOPERM"},
		"no right to expire": {[]string{"ACL", "SETUSER", "default", "-pexpire"}, []string{"ACL", "SETUSER", "default", "+@all"}, "NOPERM"},
	} {
		c.s.Do("FLUSHALL")
		states["me"](c.s)
		c.s.Do(x.refuse...)
		before := c.s.CommandStats()["publish"]
		v, err := c.run(several(time.Minute, other, nobody, me))
		c.s.Do(x.allow...)
		if err != nil || v.Kind != wire.KindArray || v.Len() != 3 {
			t.Fatalf("%s: %v, %v", name, v, err)
		}
		v.Each(func(i int, e resp.Value) bool {
			switch want := []int64{NotThere, Done}; {
			case i < 2 && e.Int != want[i]:
				t.Errorf("%s: owner %d: %d, want %d", name, i, e.Int, want[i])
			case i == 2 && (e.Kind != wire.KindError || wire.NewServerError(e.Bytes).Code != x.code):
				t.Errorf("%s: the taking: %d %q, want %s", name, e.Kind, e.Bytes, x.code)
			}
			return true
		})
		if left := c.s.Do("EXISTS", lockName); left != int64(0) {
			t.Errorf("%s: the lock is there still", name)
		}
		if n := c.s.CommandStats()["publish"] - before; n != 1 {
			t.Errorf("%s: %d messages", name, n)
		}
	}
}
