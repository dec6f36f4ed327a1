package script

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
)

var (
	mine     = Owner{Engine: me.Engine, ID: forPermits(0x7123456789abcd00, 1)}
	pair     = Owner{Engine: me.Engine, ID: forPermits(0x7223456789abcd00, 2)}
	heldKey  = HeldPermits(lockName)
	announce = Channel{Prefix: PermitChannel, Lock: lockName, Verb: "PUBLISH"}
)

// forPermits is the number of an owner that has n.
func forPermits(id int64, n int) int64 { return id&^(MaxPermits-1) | int64(n-1) }

func takePermits(o Owner, lease time.Duration) encoder {
	return func(b []byte, f resp.ScriptForm) []byte { return AppendPermitTake(b, f, lockName, o, lease, announce) }
}

func givePermits(o Owner) encoder {
	return func(b []byte, f resp.ScriptForm) []byte { return AppendPermitRelease(b, f, lockName, o, announce) }
}

func setPermits(what string, n int64) encoder {
	return func(b []byte, f resp.ScriptForm) []byte { return AppendPermitSet(b, f, lockName, what, n, announce) }
}

func renewPermits(lease time.Duration, owners ...Owner) encoder {
	var list []Renewal
	for _, o := range owners {
		list = append(list, Renewal{lockName, o, lease})
	}
	return func(b []byte, f resp.ScriptForm) []byte { return AppendPermitRenew(b, f, list) }
}

func countPermits(b []byte, f resp.ScriptForm) []byte {
	return AppendPermitCount(b, f, lockName, announce)
}

// expire has an id be there that ends so long from now, by the clock of this machine.
func putPermit(s *redistest.Server, id PermitID, left time.Duration) {
	s.Do("ZADD", heldKey, strconv.FormatInt(time.Now().Add(left).UnixMilli(), 10), string(id[:]))
}

func (c *caller) permits() string {
	n, _ := c.s.Do("GET", lockName).(string)
	return fmt.Sprintf("%s to be had, %v held", n, c.s.Do("ZCARD", heldKey))
}

// code runs a call that answers a number, or a list of them, and tells what was announced.
func (c *caller) code(encode encoder) (codes []int64, messages int64) {
	c.t.Helper()
	before := c.s.CommandStats()["publish"]
	v, err := c.run(encode)
	if err != nil {
		c.t.Fatal(err)
	}
	if v.Kind == wire.KindArray {
		v.Each(func(_ int, e resp.Value) bool { codes = append(codes, e.Int); return true })
	} else {
		codes = []int64{v.Int}
	}
	return codes, c.s.CommandStats()["publish"] - before
}

// The number was deleted, and those who hold permits were not: they count.
func TestANumberThatWasDeletedIsSetWithoutThePermitsThatAreHeld(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	for what, then := range map[string]string{TryPermits: "1 to be had, 2 held", SetPermits: "1 to be had, 2 held"} {
		c.s.Do("FLUSHALL")
		for _, id := range (Owner{Engine: me.Engine, ID: 1}).Permits() {
			putPermit(c.s, id, time.Minute)
		}
		if codes, _ := c.code(setPermits(what, 3)); codes[0] != Done || c.permits() != then {
			t.Errorf("%s: %v, %s; want %s", what, codes, c.permits(), then)
		}
		c.s.Do("FLUSHALL")
		if codes, _ := c.code(setPermits(what, 3)); codes[0] != Done || c.permits() != "3 to be had, 0 held" {
			t.Errorf("%s: %v, %s", what, codes, c.permits())
		}
	}
}

// What every script of a semaphore answers and leaves behind, in every state of one.
func TestPermitTable(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	strange := func(i byte) PermitID { return PermitID{0xff, i} }
	states := map[string]func(s *redistest.Server){
		"absent": func(*redistest.Server) {},
		"two":    func(s *redistest.Server) { s.Do("SET", lockName, "2") },
		"none, others for 5 s and 9 s": func(s *redistest.Server) {
			s.Do("SET", lockName, "0")
			putPermit(s, strange(1), 9*time.Second)
			putPermit(s, strange(2), 5*time.Second)
		},
		"none, others for ever": func(s *redistest.Server) {
			s.Do("SET", lockName, "0")
			s.Do("ZADD", heldKey, "922337203685477", "for ever")
		},
		"none, two have expired": func(s *redistest.Server) {
			s.Do("SET", lockName, "0")
			putPermit(s, strange(1), -time.Second)
			putPermit(s, strange(2), -time.Hour)
		},
		"mine": func(s *redistest.Server) {
			s.Do("SET", lockName, "1")
			putPermit(s, mine.Permits()[0], 5*time.Second)
		},
		"half of the pair": func(s *redistest.Server) {
			s.Do("SET", lockName, "1")
			putPermit(s, pair.Permits()[1], 5*time.Second)
		},
		"mine, but expired": func(s *redistest.Server) {
			s.Do("SET", lockName, "1")
			putPermit(s, mine.Permits()[0], -time.Second)
		},
		"too few by two": func(s *redistest.Server) {
			s.Do("SET", lockName, "-2")
			putPermit(s, mine.Permits()[0], 5*time.Second)
		},
	}
	for _, x := range []struct {
		state    string
		what     string
		call     encoder
		want     []int64 // anyTTL: between 4 s and 5 s
		messages int64
		left     string
	}{
		{"absent", "take", takePermits(mine, time.Minute), []int64{Unset}, 0, " to be had, 0 held"},
		{"two", "take", takePermits(mine, time.Minute), []int64{Granted}, 0, "1 to be had, 1 held"},
		{"two", "take 2", takePermits(pair, time.Minute), []int64{Granted}, 0, "0 to be had, 2 held"},
		{"mine", "take 2", takePermits(pair, time.Minute), []int64{anyTTL}, 0, "1 to be had, 1 held"},
		{"mine", "take again", takePermits(mine, time.Minute), []int64{Granted}, 0, "1 to be had, 1 held"},
		{"none, others for 5 s and 9 s", "take", takePermits(mine, time.Minute), []int64{anyTTL}, 0, "0 to be had, 2 held"},
		{"none, others for ever", "take", takePermits(mine, time.Minute), []int64{-1}, 0, "0 to be had, 1 held"},
		{"none, two have expired", "take", takePermits(mine, time.Minute), []int64{Granted}, 1, "1 to be had, 1 held"},
		{"none, two have expired", "take 2", takePermits(pair, time.Minute), []int64{Granted}, 0, "0 to be had, 2 held"},
		{"too few by two", "take", takePermits(pair, time.Minute), []int64{anyTTL}, 0, "-2 to be had, 1 held"},

		{"absent", "give", givePermits(mine), []int64{NotThere}, 0, " to be had, 0 held"},
		{"mine", "give", givePermits(mine), []int64{Done}, 1, "2 to be had, 0 held"},
		{"mine, but expired", "give", givePermits(mine), []int64{Done}, 1, "2 to be had, 0 held"},
		{"half of the pair", "give 2", givePermits(pair), []int64{NotThere}, 1, "2 to be had, 0 held"},
		{"none, others for 5 s and 9 s", "give", givePermits(mine), []int64{NotThere}, 0, "0 to be had, 2 held"},
		{"too few by two", "give", givePermits(mine), []int64{Done}, 0, "-1 to be had, 0 held"},

		{"absent", "renew", renewPermits(time.Minute, mine), []int64{Gone}, 0, " to be had, 0 held"},
		{"mine", "renew", renewPermits(time.Minute, mine, pair), []int64{Renewed, Gone}, 0, "1 to be had, 1 held"},
		{"mine, but expired", "renew", renewPermits(time.Minute, mine), []int64{Gone}, 0, "1 to be had, 1 held"},
		{"half of the pair", "renew 2", renewPermits(time.Minute, pair), []int64{Gone}, 0, "1 to be had, 1 held"},

		{"absent", "try", setPermits(TryPermits, 3), []int64{Done}, 1, "3 to be had, 0 held"},
		{"two", "try", setPermits(TryPermits, 3), []int64{0}, 0, "2 to be had, 0 held"},
		{"absent", "set", setPermits(SetPermits, 3), []int64{Done}, 1, "3 to be had, 0 held"},
		{"mine", "set", setPermits(SetPermits, 3), []int64{Done}, 1, "2 to be had, 1 held"},
		{"mine", "set what it has", setPermits(SetPermits, 2), []int64{Done}, 0, "1 to be had, 1 held"},
		{"mine", "set less", setPermits(SetPermits, 0), []int64{Done}, 0, "-1 to be had, 1 held"},
		{"absent", "add", setPermits(AddPermits, 3), []int64{Done}, 1, "3 to be had, 0 held"},
		{"mine", "add", setPermits(AddPermits, 3), []int64{Done}, 1, "4 to be had, 1 held"},
		{"too few by two", "add", setPermits(AddPermits, 2), []int64{Done}, 0, "0 to be had, 1 held"},
		{"two", "add less", setPermits(AddPermits, -3), []int64{Done}, 0, "-1 to be had, 0 held"},

		{"absent", "count", countPermits, []int64{0, 0}, 0, " to be had, 0 held"},
		{"mine", "count", countPermits, []int64{1, 1}, 0, "1 to be had, 1 held"},
		{"none, two have expired", "count", countPermits, []int64{2, 0}, 1, "2 to be had, 0 held"},
	} {
		c.s.Do("FLUSHALL")
		states[x.state](c.s)
		got, messages := c.code(x.call)
		if x.want[0] == anyTTL && got[0] > 4000 && got[0] <= 5000 {
			got[0] = anyTTL
		}
		if !slices.Equal(got, x.want) || messages != x.messages || c.permits() != x.left {
			t.Errorf("%s of %q: %v, %d messages, %s; want %v, %d, %s", x.what, x.state, got, messages, c.permits(), x.want, x.messages, x.left)
		}
	}
}

// A lease is raised, never cut, by the clock of the server.
func TestPermitsAreRenewed(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	c.s.Do("SET", lockName, "3")
	until := func(id PermitID) time.Duration {
		score, _ := c.s.Do("ZSCORE", heldKey, string(id[:])).(string)
		ms, err := strconv.ParseInt(score, 10, 64)
		if err != nil {
			t.Fatalf("score %q: %v", score, err)
		}
		return time.Until(time.UnixMilli(ms))
	}
	for _, x := range []struct {
		call encoder
		want time.Duration
	}{
		{takePermits(pair, 10*time.Second), 10 * time.Second},
		{renewPermits(time.Minute, pair), time.Minute},
		{renewPermits(time.Second, pair), time.Minute},
	} {
		c.code(x.call)
		for _, id := range pair.Permits() {
			if left := until(id); left > x.want || left < x.want-2*time.Second {
				t.Errorf("%v left, want %v", left, x.want)
			}
		}
	}
	// If the semaphore ends, its ids do.
	c.s.Do("PEXPIRE", lockName, "5000")
	c.code(takePermits(mine, time.Minute))
	if left := c.s.Do("PTTL", heldKey).(int64); left < 4000 || left > 5000 {
		t.Errorf("the ids end in %d ms", left)
	}
}

// Nobody's permits have the same id, and the number of an owner knows how many it has.
func TestPermitIDsAreUnique(t *testing.T) {
	t.Parallel()
	seen := make(map[PermitID]bool)
	for _, engine := range []string{me.Engine, other.Engine} {
		for id := range int64(100) {
			for _, n := range []int{1, 2, MaxPermits} {
				o := Owner{Engine: engine, ID: forPermits(id<<permitBits|id, n)}
				ids := o.Permits()
				if len(ids) != n {
					t.Fatalf("%d ids, want %d", len(ids), n)
				}
				for _, p := range ids {
					if seen[p] {
						t.Fatalf("%x was another's", p)
					}
					seen[p] = true
				}
			}
		}
	}
}

// A server without memory, or a user without a right, takes no permit and creates none.
func TestPermitThatIsRefusedChangesNothing(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	for what, x := range map[string]struct {
		before, after []string
		call          encoder
		refused       bool
		left          string
	}{
		"take without memory":          {[]string{"CONFIG", "SET", "maxmemory", "1"}, []string{"CONFIG", "SET", "maxmemory", "0"}, takePermits(pair, time.Minute), true, "2 to be had, 1 held"},
		"take without a right to add":  {[]string{"ACL", "SETUSER", "default", "-zadd"}, []string{"ACL", "SETUSER", "default", "+zadd"}, takePermits(pair, time.Minute), true, "2 to be had, 1 held"},
		"take without a right to take": {[]string{"ACL", "SETUSER", "default", "-decrby"}, []string{"ACL", "SETUSER", "default", "+decrby"}, takePermits(pair, time.Minute), true, "2 to be had, 1 held"},
		"give without memory":          {[]string{"CONFIG", "SET", "maxmemory", "1"}, []string{"CONFIG", "SET", "maxmemory", "0"}, givePermits(mine), false, "3 to be had, 0 held"},
		"give without a right to add":  {[]string{"ACL", "SETUSER", "default", "-incrby"}, []string{"ACL", "SETUSER", "default", "+incrby"}, givePermits(mine), true, "2 to be had, 1 held"},
		"renew without memory":         {[]string{"CONFIG", "SET", "maxmemory", "1"}, []string{"CONFIG", "SET", "maxmemory", "0"}, renewPermits(time.Minute, mine), false, "2 to be had, 1 held"},
		"renew without a right to":     {[]string{"ACL", "SETUSER", "default", "-zadd"}, []string{"ACL", "SETUSER", "default", "+zadd"}, renewPermits(time.Minute, mine), true, "2 to be had, 1 held"},
		"no right to tell":             {[]string{"ACL", "SETUSER", "default", "-publish"}, []string{"ACL", "SETUSER", "default", "+publish"}, givePermits(mine), false, "3 to be had, 0 held"},
	} {
		c.s.Do("FLUSHALL")
		c.s.Do("SET", lockName, "2")
		putPermit(c.s, mine.Permits()[0], time.Minute)
		c.s.Do(x.before...)
		v, err := c.run(x.call)
		c.s.Do(x.after...)
		var refused *resp.ServerError
		if errors.As(err, &refused) != x.refused || err == nil == x.refused {
			t.Errorf("%s: %v, %v", what, v.Int, err)
		}
		if what == "no right to tell" && v.Int != Unheard {
			t.Errorf("%s: %d", what, v.Int)
		}
		if c.permits() != x.left {
			t.Errorf("%s leaves %s, want %s", what, c.permits(), x.left)
		}
	}
}

// One that is refused permits, and cannot see when the next one expires, is told so: it would sleep
// until a message that does not come.
func TestWhoCannotSeeWhenAPermitExpiresIsReported(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	c.s.Do("SET", lockName, "0")
	putPermit(c.s, mine.Permits()[0], time.Minute)
	c.s.Do("ACL", "SETUSER", "default", "-zrange")
	v, err := c.run(takePermits(pair, time.Minute))
	var refused *resp.ServerError
	if !errors.As(err, &refused) || refused.Code != "NOPERM" {
		t.Errorf("%d, %v; want NOPERM", v.Int, err)
	}
}

// Who is told that it is refused has taken nothing away: the permit keeps its holder and its lease.
func TestPermitThatMayNotBeGivenBackStays(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	id := mine.Permits()[0]
	for _, rights := range [][]string{{"incrby"}, {"incrby", "zadd"}, {"zrem"}} {
		c.s.Do("FLUSHALL")
		c.s.Do("SET", lockName, "2")
		putPermit(c.s, id, time.Minute)
		before := c.s.Do("ZSCORE", heldKey, string(id[:]))
		for _, right := range rights {
			c.s.Do("ACL", "SETUSER", "default", "-"+right)
		}
		_, err := c.run(givePermits(mine))
		for _, right := range rights {
			c.s.Do("ACL", "SETUSER", "default", "+"+right)
		}
		var refused *resp.ServerError
		if !errors.As(err, &refused) || refused.Code != "NOPERM" {
			t.Errorf("without %v: %v, want NOPERM", rights, err)
		}
		if after := c.s.Do("ZSCORE", heldKey, string(id[:])); after != before || c.permits() != "2 to be had, 1 held" {
			t.Errorf("without %v: it was held until %v, is until %v; %s", rights, before, after, c.permits())
		}
	}
}

// A user who may not count loses no permit that has expired.
func TestExpiredPermitsStayIfTheyMayNotBeCounted(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	for what, call := range map[string]encoder{"take": takePermits(pair, time.Minute), "count": countPermits} {
		c.s.Do("FLUSHALL")
		c.s.Do("SET", lockName, "2")
		c.s.Do("ZADD", heldKey, "1", "expired")
		c.s.Do("ACL", "SETUSER", "default", "-incrby")
		_, err := c.run(call)
		c.s.Do("ACL", "SETUSER", "default", "+incrby")
		var refused *resp.ServerError
		if !errors.As(err, &refused) || refused.Code != "NOPERM" || c.permits() != "2 to be had, 1 held" {
			t.Errorf("%s: %v, leaves %s", what, err, c.permits())
		}
	}
}

// Many that have expired come back by one script: Redisson's own fails at 8000 (T31).
func TestManyExpiredPermitsComeBack(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	const n = 20_000
	for at := 0; at < n; {
		args := []string{"ZADD", heldKey}
		for range 1000 {
			at++
			args = append(args, "1", "id"+strconv.Itoa(at))
		}
		c.s.Do(args...)
	}
	if got, messages := c.code(countPermits); !slices.Equal(got, []int64{n, 0}) || messages != 1 {
		t.Errorf("%v, %d messages", got, messages)
	}
}

// A key of another type is no semaphore; a neighbour of it is renewed anyway.
func TestPermitsOfAnotherType(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	putPermit(c.s, mine.Permits()[0], time.Minute)
	c.s.Do("SET", HeldPermits("text"), "1")
	list := []Renewal{{"text", mine, time.Minute}, {lockName, mine, time.Minute}}
	got, _ := c.code(func(b []byte, f resp.ScriptForm) []byte { return AppendPermitRenew(b, f, list) })
	if !slices.Equal(got, []int64{WrongType, Renewed}) {
		t.Errorf("renew: %v", got)
	}
	for what, key := range map[string][]string{
		"a hash": {"HSET", lockName, "a", "b"}, "a string that is no number": {"SET", lockName, "foreign"},
	} {
		c.s.Do("DEL", lockName)
		c.s.Do(key...)
		for name, call := range map[string]encoder{
			"take": takePermits(pair, time.Minute), "count": countPermits, "set": setPermits("set", 3), "add": setPermits("add", 3),
		} {
			var refused *resp.ServerError
			if _, err := c.run(call); !errors.As(err, &refused) || refused.Code != "WRONGTYPE" {
				t.Errorf("%s of %s: %v", name, what, err)
			}
		}
	}
}
