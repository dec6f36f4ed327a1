package script

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/resp"
)

const (
	queueName   = QueuePrefix + ":{" + lockName + "}"
	timeoutName = TimeoutPrefix + ":{" + lockName + "}"
	room        = 10 * time.Second
	unscored    = 1e6
)

var (
	ann = Owner{Engine: other.Engine, ID: 2100000000000000021}
	ben = Owner{Engine: other.Engine, ID: 2200000000000000022}
	cid = Owner{Engine: other.Engine, ID: 2300000000000000023}
	jan = Owner{Engine: other.Engine, ID: 31} // a thread of Redisson's
	jim = Owner{Engine: other.Engine, ID: 32}
)

// A place is an owner in the queue, and for how many seconds it is still waited for.
type place struct {
	owner Owner
	left  float64
}

// queue is that of these tests: nobody listens, so one who is told has 3 seconds left if the
// server counts who hears.
func queue(counts bool) Queue { return Queue{Key: lockName, Channel: wake, Counts: counts, Room: room} }

func fair(q Queue, waits bool) func([]byte, resp.ScriptForm) []byte {
	return func(b []byte, f resp.ScriptForm) []byte { return AppendFair(b, f, q, me, 9*time.Second, waits) }
}
func fairRelease(q Queue, rest time.Duration) func([]byte, resp.ScriptForm) []byte {
	return func(b []byte, f resp.ScriptForm) []byte { return AppendFairRelease(b, f, q, me, nobody, rest) }
}
func fairForce(q Queue, owner string) func([]byte, resp.ScriptForm) []byte {
	return func(b []byte, f resp.ScriptForm) []byte { return AppendFairForce(b, f, q, owner) }
}

// milliseconds is the server's time.
func milliseconds(s *redistest.Server) float64 {
	t := s.Do("TIME").([]any)
	sec, _ := strconv.ParseFloat(t[0].(string), 64)
	micro, _ := strconv.ParseFloat(t[1].(string), 64)
	return sec*1000 + math.Floor(micro/1000)
}

// lineUp prepares the lock and its queue.
func (c *caller) lineUp(state string, places []place) {
	c.s.Do("FLUSHALL")
	states[state](c.s)
	now := milliseconds(c.s)
	for _, p := range places {
		c.s.Do("RPUSH", queueName, p.owner.String())
		if p.left != unscored {
			c.s.Do("ZADD", timeoutName, strconv.FormatFloat(now+p.left*1000, 'f', -1, 64), p.owner.String())
		}
	}
}

// line reads the queue. Seconds are rounded up.
func (c *caller) line() (places []place) {
	now := milliseconds(c.s)
	all, _ := c.s.Do("LRANGE", queueName, "0", "-1").([]any)
	known := map[string]Owner{}
	for _, o := range []Owner{me, other, ann, ben, cid, jan, jim} {
		known[o.String()] = o
	}
	for _, o := range all {
		p := place{known[o.(string)], unscored}
		if score, ok := c.s.Do("ZSCORE", timeoutName, o.(string)).(string); ok {
			ms, err := strconv.ParseFloat(score, 64)
			if err != nil || ms != math.Trunc(ms) {
				c.t.Errorf("%s has the score %s, which Redisson cannot read", o, score)
			}
			p.left = math.Ceil((ms - now) / 1000)
		}
		places = append(places, p)
	}
	if n := c.s.Do("ZCARD", timeoutName); n != int64(len(all)) {
		c.t.Errorf("%d in the queue, %v scores", len(all), n)
	}
	return places
}

type fairRow struct {
	name   string
	state  string // of the lock
	before []place
	encode func([]byte, resp.ScriptForm) []byte
	code   int64  // anyTTL: what the key has left
	holder string // afterwards
	after  []place
}

func (x *fairRow) check(t *testing.T, c *caller) {
	t.Helper()
	c.lineUp(x.state, x.before)
	v, err := c.run(x.encode)
	got := v.Int
	if x.code == anyTTL && got > 4000 && got <= 5000 {
		got = anyTTL
	}
	if err != nil || got != x.code {
		t.Errorf("%s: answers %d, %v; want %d", x.name, v.Int, err, x.code)
	}
	fields, _ := c.s.Do("HKEYS", lockName).([]any)
	if x.holder == "" && len(fields) != 0 || x.holder != "" && (len(fields) != 1 || fields[0] != x.holder) {
		t.Errorf("%s: held by %v, want %s", x.name, fields, x.holder)
	}
	if after := c.line(); !reflect.DeepEqual(after, x.after) {
		t.Errorf("%s: the queue is %v, want %v", x.name, after, x.after)
	}
}

func TestFairServesTheHeadAndQueuesTheOthers(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	ask, try := fair(queue(true), true), fair(queue(true), false)
	mine, theirs := me.String(), other.String()
	for _, x := range []fairRow{
		{"free, nobody waits", "absent", nil, ask, Granted, mine, nil},
		{"free, my turn: those behind come nearer", "absent", []place{{me, 20}, {ann, 30}, {ben, 40}}, ask, Granted, mine, []place{{ann, 19}, {ben, 29}}},
		{"free, my turn: those behind have room for my lease and their places", "absent", []place{{me, 3}, {ann, 3}, {ben, 31}}, ask, Granted, mine, []place{{ann, 19}, {ben, 29}}},
		{"free, one before me has died long ago", "absent", []place{{ann, -1}, {me, 20}}, ask, Granted, mine, nil},
		{"free, one before me has no score", "absent", []place{{ann, unscored}, {me, 20}}, ask, Granted, mine, nil},
		{"free, another's turn: nobody hears it", "absent", []place{{ann, 20}, {me, 30}}, ask, 100, "", []place{{ann, 3}, {me, 30}}},
		{"free, nobody hears those before me", "absent", []place{{ann, 20}, {ben, 30}, {me, 40}}, ask, 200, "", []place{{ann, 3}, {ben, 3}, {me, 40}}},
		{"free, nobody hears threads of Redisson before me", "absent", []place{{jan, 20}, {jim, 30}, {me, 40}}, ask, 200, "", []place{{jan, 3}, {jim, 30}, {me, 40}}},
		{"free, those before me have been told", "absent", []place{{ann, 3}, {ben, 30}, {me, 40}}, ask, 200, "", []place{{ann, 3}, {ben, 30}, {me, 40}}},
		{"free, another's turn, its time is nearly over", "absent", []place{{ann, 2}}, ask, 100, "", []place{{ann, 2}, {me, 20}}},
		{"free, another's turn, nobody counts", "absent", []place{{ann, 20}}, fair(queue(false), true), 100, "", []place{{ann, 20}, {me, 20}}},
		{"free, another's turn, two wait: I am the third", "absent", []place{{ann, 20}, {ben, 30}}, fair(queue(false), true), 200, "", []place{{ann, 20}, {ben, 30}, {me, 30}}},
		{"free, one of a process has let its turn pass", "absent", []place{{ann, -1}, {ben, 20}, {jan, 30}, {me, 40}}, fair(queue(false), true), 200, "", []place{{ben, 3}, {jan, 20}, {me, 30}}},
		{"free, one of a process has let its turn pass, and the next has two seconds", "absent", []place{{ann, -1}, {ben, 2}, {me, 900}}, fair(queue(false), true), 100, "", []place{{ben, 2}, {me, 20}}},
		{"free, a thread and one of a process have let their turns pass", "absent", []place{{jan, -1}, {ann, -1}, {ben, 300}, {me, 900}}, fair(queue(false), true), 100, "", []place{{ben, 3}, {me, 20}}},
		{"free, a thread has let its turn pass", "absent", []place{{jan, -1}, {jim, 20}, {ben, 30}, {me, 40}}, fair(queue(false), true), 200, "", []place{{jim, 10}, {ben, 20}, {me, 30}}},
		{"held, one of a process has let its turn pass", "others", []place{{ann, -1}, {ben, 300}, {me, 900}}, ask, anyTTL, theirs, []place{{ben, 8}, {me, 25}}},
		{"held, nobody waits", "others", nil, ask, anyTTL, theirs, []place{{me, 15}}},
		{"held, another waits", "others", []place{{ann, 15}}, ask, anyTTL, theirs, []place{{ann, 15}, {me, 25}}},
		{"held, two wait", "others", []place{{ann, 15}, {ben, 25}}, ask, anyTTL, theirs, []place{{ann, 15}, {ben, 25}, {me, 35}}},
		{"held, the last has far more time than its place needs", "others", []place{{ann, 15}, {ben, 9000}}, ask, anyTTL, theirs, []place{{ann, 15}, {ben, 9000}, {me, 35}}},
		{"held, I wait: I am alive", "others", []place{{me, 1}, {ann, 20}}, ask, anyTTL, theirs, []place{{me, 15}, {ann, 20}}},
		{"held, I wait behind another", "others", []place{{ann, 5}, {me, 5}}, ask, anyTTL, theirs, []place{{ann, 5}, {me, 25}}},
		{"held, I have more time than I need", "others", []place{{me, 100}}, ask, anyTTL, theirs, []place{{me, 100}}},
		{"held, my time was over", "others", []place{{me, -1}, {ann, 20}}, ask, anyTTL, theirs, []place{{ann, 15}, {me, 25}}},
		{"held, no expiry", "others, no expiry", nil, ask, NoExpiry, theirs, []place{{me, 10}}},
		{"mine already", "me", []place{{ann, 15}}, ask, Granted, mine, []place{{ann, 15}}},
		{"no wait: free", "absent", nil, try, Granted, mine, nil},
		{"no wait: held", "others", nil, try, anyTTL, theirs, nil},
		{"no wait: another's turn", "absent", []place{{ann, 20}}, try, 100, "", []place{{ann, 3}}},
		{"no wait: nobody hears those who wait", "absent", []place{{ann, 20}, {ben, 30}}, try, 100, "", []place{{ann, 3}, {ben, 3}}},
	} {
		x.check(t, c)
		if left := c.s.Do("PTTL", lockName).(int64); x.code == Granted && (left < 8000 || left > 9000) {
			t.Errorf("%s: %d ms left", x.name, left)
		}
	}
}

// The queue of processes that have died expires. But threads of Redisson, which set no expiry, may
// come behind the last waiter of ours, and keep the queue for as long as they like.
func TestAQueueOutlivesOursByADay(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	const day = 86400
	for _, x := range []struct {
		before []place
		least  int64 // seconds
	}{
		{nil, day},
		{[]place{{ann, 20}}, day},
		{[]place{{ann, 2 * day}}, 2 * day},
	} {
		c.lineUp("others", x.before)
		if _, err := c.run(fair(queue(true), true)); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{queueName, timeoutName} {
			if left := c.s.Do("PTTL", key).(int64); left < x.least*1000-5000 || left > x.least*1000+25000 {
				t.Errorf("%v: %s has %d ms left, want %d s", x.before, key, left, x.least)
			}
		}
	}
}

// A process of which one has let its turn pass may be dead, or only slow: its others are told, so that
// those who live ask in time, up to the one who asks now, which lives.
func TestTheOthersOfAProcessWhoseTurnPassedAreReported(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	for what, ask := range map[string]func([]byte, resp.ScriptForm) []byte{
		"fair": fair(queue(false), true), "fairrelease": fairRelease(queue(false), 0), "fairforce": fairForce(queue(false), ""),
	} {
		c.lineUp("absent", []place{{ann, -1}, {ben, 300}, {cid, 600}, {jan, 700}, {me, 900}})
		before := c.s.CommandStats()["publish"]
		if _, err := c.run(ask); err != nil {
			t.Fatal(err)
		}
		// ann, ben and cid; then ben, who is next.
		if n := c.s.CommandStats()["publish"] - before; n != 4 {
			t.Errorf("%s: %d messages, want 4", what, n)
		}
	}
	x := fairRow{"one of them asks", "absent", []place{{ann, -1}, {ben, 300}, {cid, 600}},
		func(b []byte, f resp.ScriptForm) []byte {
			return AppendFair(b, f, queue(false), cid, 9*time.Second, true)
		}, 100, "", []place{{ben, 3}, {cid, 20}}}
	x.check(t, c)
	// Those that may not have been told have the time of their places: they live, perhaps, and ask later
	// than in three seconds.
	for state, places := range map[string][]place{"absent": {{ben, 10}, {me, 20}}, "others": {{ben, 15}, {me, 25}}} {
		c.lineUp(state, []place{{ann, -1}, {ben, 300}, {me, 900}})
		c.s.Do("ACL", "SETUSER", "default", "-publish")
		_, err := c.run(fair(queue(true), true))
		c.s.Do("ACL", "SETUSER", "default", "+publish")
		if line := c.line(); err != nil || !slices.Equal(line, places) {
			t.Errorf("%s: %v; the queue is %v", state, err, line)
		}
	}
}

func TestFairReleaseFreesOrLeavesAndTellsTheNext(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	give, quiet, rest := fairRelease(queue(true), 0), fairRelease(queue(false), 0), fairRelease(queue(true), 2*time.Second)
	theirs := other.String()
	for _, x := range []fairRow{
		{"nobody waits", "me", nil, give, Done, "", nil},
		{"two wait whom nobody hears", "me", []place{{ann, 20}, {ben, 30}}, give, Done, "", []place{{ann, 3}, {ben, 3}}},
		{"two wait, nobody counts", "me", []place{{ann, 20}, {ben, 30}}, quiet, Done, "", []place{{ann, 20}, {ben, 30}}},
		{"the head has died long ago", "me", []place{{jan, -5}, {ben, 30}}, quiet, Done, "", []place{{ben, 10}}},
		{"the head has died long ago, and others of its process are next", "me", []place{{ann, -5}, {ben, 300}, {jan, 600}, {other, 900}}, quiet, Done, "", []place{{ben, 3}, {jan, 20}, {other, 30}}},
		{"I leave, the head has died long ago, and others of its process are next", "absent", []place{{ann, -1}, {ben, 300}, {me, 900}}, quiet, NotThere, "", []place{{ben, 3}}},
		{"I leave, the head has died long ago, and it is held", "others", []place{{ann, -1}, {ben, 300}, {me, 900}}, quiet, NotThere, theirs, []place{{ann, -1}, {ben, 300}}},
		{"I leave, a thread of Redisson's has died long ago", "absent", []place{{jan, -1}, {jim, 300}, {me, 900}}, quiet, NotThere, "", []place{{jim, 10}}},
		{"I leave, the head has died long ago, and the next has two seconds", "absent", []place{{ann, -1}, {ben, 2}, {me, 900}}, quiet, NotThere, "", []place{{ben, 2}}},
		{"I leave the middle", "others", []place{{ann, 20}, {me, 30}, {ben, 40}}, give, NotThere, theirs, []place{{ann, 20}, {ben, 25}}},
		{"I leave before one with three seconds", "others", []place{{me, 30}, {ann, 3}, {ben, 40}}, give, NotThere, theirs, []place{{ann, 15}, {ben, 25}}},
		{"I leave before one with three seconds, and it is free", "absent", []place{{me, 30}, {ann, 3}, {ben, 40}}, give, NotThere, "", []place{{ann, 3}, {ben, 3}}},
		{"I leave before one with three seconds that is heard, and it is free", "absent", []place{{me, 30}, {ann, 3}, {ben, 40}}, quiet, NotThere, "", []place{{ann, 3}, {ben, 20}}},
		{"two threads of Redisson wait whom nobody hears", "me", []place{{jan, 20}, {jim, 30}}, give, Done, "", []place{{jan, 3}, {jim, 30}}},
		{"I leave the end", "others", []place{{ann, 20}, {ben, 30}, {me, 40}}, give, NotThere, theirs, []place{{ann, 20}, {ben, 30}}},
		{"I leave the head, and it is held", "others", []place{{me, 20}, {ann, 30}}, give, NotThere, theirs, []place{{ann, 15}}},
		{"I leave the head, and it is free", "absent", []place{{me, 20}, {ann, 30}}, give, NotThere, "", []place{{ann, 3}}},
		{"I leave the head, nobody counts", "absent", []place{{me, 20}, {ann, 30}}, quiet, NotThere, "", []place{{ann, 10}}},
		{"I was the only one", "absent", []place{{me, 20}}, give, NotThere, "", nil},
		{"I am nobody, and it is free: the head is woken", "absent", []place{{ann, 20}}, give, NotThere, "", []place{{ann, 3}}},
		{"I am nobody, and it is held", "others", []place{{ann, 20}}, give, NotThere, theirs, []place{{ann, 20}}},
		{"it stays taken for a while: it is nobody's turn yet", "me", []place{{ann, 20}, {ben, 30}}, rest, Done, nobody.String(), []place{{ann, 20}, {ben, 30}}},
		{"it stays taken for a while, and others of a process whose turn passed are next", "me", []place{{ann, -1}, {ben, 300}, {jan, 600}}, rest, Done, nobody.String(), []place{{ben, 5}, {jan, 22}}},
		{"not mine, so it does not stay taken", "absent", []place{{me, 20}}, rest, NotThere, "", nil},
		{"not mine, and it is free: the head is woken", "absent", []place{{ann, 20}}, rest, NotThere, "", []place{{ann, 3}}},
	} {
		x.check(t, c)
	}
	c.lineUp("me", nil)
	if v, err := c.run(rest); err != nil || v.Int != Done {
		t.Fatal(v.Int, err)
	}
	if left := c.s.Do("PTTL", lockName).(int64); left < 1000 || left > 2000 {
		t.Errorf("it stays taken for %d ms", left)
	}
	c.lineUp("me", []place{{ann, 20}})
	if v, err := c.run(retire(me, 2*time.Second)); err != nil || v.Int != Done {
		t.Fatal(v.Int, err)
	}
	before := c.s.CommandStats()["publish"]
	if v, err := c.run(give); err != nil || v.Int != NotThere {
		t.Fatal(v.Int, err)
	}
	if n := c.s.CommandStats()["publish"] - before; n != 1 {
		t.Errorf("the hash alone was retired: the head is told %d times", n)
	}
}

// A thread of Redisson's may live, though its time is over: it may have had room for no more than
// 60 ms, and the lock was held for longer. It asks when it is told, and comes in again.
func TestOneWhoseTimeIsOverIsReported(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	for _, x := range []struct {
		name     string
		state    string
		run      func([]byte, resp.ScriptForm) []byte
		notified int64 // also the next one, where it is free
	}{
		{"by one who asks", "others", fair(queue(false), true), 2},
		{"by one who releases", "me", fairRelease(queue(false), 0), 3},
		{"by one who takes it away", "me", fairForce(queue(false), ""), 3},
	} {
		c.lineUp(x.state, []place{{jan, -5}, {jim, -1}, {ann, 20}})
		before := c.s.CommandStats()["publish"]
		if _, err := c.run(x.run); err != nil {
			t.Errorf("%s: %v", x.name, err)
		}
		if n := c.s.CommandStats()["publish"] - before; n != x.notified {
			t.Errorf("%s: %d are told", x.name, n)
		}
		if line := c.line(); line[0].owner != ann {
			t.Errorf("%s: the queue is %v", x.name, line)
		}
	}
}

// One that is far behind asks again every 3 seconds, no later: its process may be the only one that
// lives.
func TestOneThatIsFarBehindAsksAgainWithinThreeSeconds(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	var line []place
	for i := range 40 {
		line = append(line, place{Owner{Engine: other.Engine, ID: ann.ID + int64(i)}, 20})
	}
	c.lineUp("absent", line)
	if v, err := c.run(fair(queue(false), true)); err != nil || v.Int != 3000 {
		t.Errorf("it asks again after %d ms, %v", v.Int, err)
	}
}

// The list was evicted, and the scores were not. Who asks then is in the queue again.
func TestOneWhoseQueueIsGoneIsQueuedAgain(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	for _, lpos := range []string{"+lpos", "-lpos"} { // before Redis 6.0.6 there is none
		c.lineUp("others", []place{{me, 20}})
		c.s.Do("DEL", queueName)
		c.s.Do("ACL", "SETUSER", "default", lpos)
		_, err := c.run(fair(queue(false), true))
		_, again := c.run(fair(queue(false), true))
		c.s.Do("ACL", "SETUSER", "default", "+lpos")
		if line := c.line(); err != nil || again != nil || !slices.Equal(line, []place{{me, 20}}) {
			t.Errorf("%s: %v, %v; the queue is %v", lpos, err, again, line)
		}
	}
}

// What follows when the owner has gone is refused to nobody: asked again, it would find nothing, and
// tell nobody. Who is next is told, if that can be seen.
func TestAFairReleaseWithoutARightTellsWhoIsNext(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	for _, right := range []string{"zscore", "lindex", "lrange", "lrem", "zadd", "zrem", "lpop", "pttl", "publish"} {
		for _, line := range [][]place{{{ann, 20}}, {{ben, -1}, {ann, 20}}, {{me, 10}, {ann, 20}}} {
			c.lineUp("me", line)
			before := c.s.CommandStats()["publish"]
			c.s.Do("ACL", "SETUSER", "default", "-"+right)
			v, err := c.run(fairRelease(queue(true), 0))
			c.s.Do("ACL", "SETUSER", "default", "+"+right)
			notified := c.s.CommandStats()["publish"] > before
			if last := c.s.Do("LINDEX", queueName, "-1"); last != ann.String() {
				t.Errorf("without %s: the last in the queue is %v", right, last)
			}
			if n := c.s.Do("EXISTS", lockName); err != nil || n != int64(0) {
				t.Errorf("without %s: %v; the lock is there: %v", right, err, n)
			}
			if !notified && v.Int != Unheard {
				t.Errorf("without %s: nobody is told, and the answer is %d", right, v.Int)
			}
			if blind := right == "lindex" || right == "publish"; !notified && !blind {
				t.Errorf("without %s: nobody is told", right)
			}
		}
	}
}

// One that leaves the queue, and may not, is told so: it is in it still.
func TestAWaiterThatMayNotLeaveIsReported(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	for _, right := range []string{"zscore", "lrange", "lrem", "zadd", "zrem"} {
		c.lineUp("others", []place{{me, 10}, {ann, 20}})
		c.s.Do("ACL", "SETUSER", "default", "-"+right)
		v, err := c.run(fairRelease(queue(true), 0))
		c.s.Do("ACL", "SETUSER", "default", "+"+right)
		var refused *resp.ServerError
		if !errors.As(err, &refused) || refused.Code != "NOPERM" {
			t.Errorf("without %s: %d, %v; want NOPERM", right, v.Int, err)
		}
	}
}

func TestFairForceKeepsTheQueue(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	waiting := []place{{ann, 20}, {ben, 30}}
	for _, x := range []fairRow{
		{"from any owner", "others", waiting, fairForce(queue(false), ""), Done, "", waiting},
		{"the head has died long ago, and others of its process are next", "others", []place{{ann, -1}, {ben, 300}, {jan, 600}}, fairForce(queue(false), ""), Done, "", []place{{ben, 3}, {jan, 20}}},
		{"the head is told", "others", waiting[:1], fairForce(queue(true), ""), Done, "", []place{{ann, 3}}},
		{"a thread of Redisson's behind the head is not the next", "others", []place{{jan, 20}, {jim, 30}}, fairForce(queue(true), ""), Done, "", []place{{jan, 3}, {jim, 30}}},
		{"that owner", "me", waiting, fairForce(queue(false), me.String()), Done, "", waiting},
		{"another owner", "others", waiting, fairForce(queue(true), me.String()), 0, other.String(), waiting},
		{"free: the head is told", "absent", waiting[:1], fairForce(queue(true), ""), 0, "", []place{{ann, 3}}},
		{"free, of that owner: the head is told", "absent", waiting[:1], fairForce(queue(true), me.String()), 0, "", []place{{ann, 3}}},
	} {
		x.check(t, c)
	}
}

// Who is told that it is refused has taken nothing away.
func TestFairForceWithoutARightTakesNothing(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	for _, right := range []string{"hdel", "del", "time", "lindex", "zscore", "zadd"} {
		c.lineUp("others", []place{{ann, 20}})
		c.s.Do("ACL", "SETUSER", "default", "-"+right)
		_, err := c.run(fairForce(queue(true), ""))
		c.s.Do("ACL", "SETUSER", "default", "+"+right)
		var refused *resp.ServerError
		if !errors.As(err, &refused) || refused.Code != "NOPERM" {
			t.Errorf("without %s: %v, want NOPERM", right, err)
		}
		if n := c.s.Do("HEXISTS", lockName, other.String()); n != int64(1) {
			t.Errorf("without %s: refused, and taken away", right)
		}
	}
}

// What gives back is refused by no server that is out of memory, and by no missing right to
// publish. What would take a place is, and takes none.
func TestFairOnAServerThatRefuses(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	q := queue(true)
	noMemory := func(f func()) {
		c.s.Do("CONFIG", "SET", "maxmemory", "1")
		f()
		c.s.Do("CONFIG", "SET", "maxmemory", "0")
	}
	for _, x := range []fairRow{
		{"release", "me", []place{{ann, 20}}, fairRelease(q, 0), Done, "", nil},
		{"leave", "others", []place{{ann, 20}, {me, 30}, {ben, 40}}, fairRelease(q, 0), NotThere, "", nil},
		{"force", "others", []place{{ann, 20}}, fairForce(q, ""), Done, "", nil},
	} {
		c.lineUp(x.state, x.before)
		noMemory(func() {
			if v, err := c.run(x.encode); err != nil || v.Int != x.code {
				t.Errorf("%s without memory: %d, %v", x.name, v.Int, err)
			}
		})
		if n := c.s.Do("HEXISTS", lockName, me.String()); n != int64(0) {
			t.Errorf("%s without memory: still mine", x.name)
		}
		if score := c.s.Do("ZSCORE", timeoutName, me.String()); score != nil {
			t.Errorf("%s without memory: still queued", x.name)
		}
	}
	for _, state := range []string{"absent", "others"} {
		c.lineUp(state, nil)
		noMemory(func() {
			_, err := c.run(fair(q, true))
			var refused *resp.ServerError
			if !errors.As(err, &refused) || refused.Code != "OOM" {
				t.Errorf("%s: %v, want OOM", state, err)
			}
		})
		if n := c.s.Do("EXISTS", queueName, timeoutName); n != int64(0) || c.s.Do("HEXISTS", lockName, me.String()) != int64(0) {
			t.Errorf("%s: I have a place or the lock", state)
		}
	}
	c.lineUp("absent", nil)
	c.s.Do("ACL", "SETUSER", "default", "-pexpire")
	_, err := c.run(fair(q, true))
	c.s.Do("ACL", "SETUSER", "default", "+pexpire")
	if left := c.s.Do("EXISTS", lockName); err == nil || left != int64(0) {
		t.Errorf("without the right to set an expiry: %v, %v locks are there", err, left)
	}
	for _, x := range []struct {
		name, state string
		encode      func([]byte, resp.ScriptForm) []byte
		code        int64
	}{
		{"release", "me", fairRelease(q, 0), Unheard},
		{"force", "others", fairForce(q, ""), Unheard},
		{"a try in another's turn", "absent", fair(q, true), 100},
	} {
		c.lineUp(x.state, []place{{ann, 20}})
		c.s.Do("ACL", "SETUSER", "default", "-publish")
		v, err := c.run(x.encode)
		c.s.Do("ACL", "SETUSER", "default", "+publish")
		if err != nil || v.Int != x.code {
			t.Errorf("%s without the right to publish: %d, %v", x.name, v.Int, err)
		}
		if p := c.line(); p[0] != (place{ann, 20}) {
			t.Errorf("%s without the right to publish: one who was not told has %v left", x.name, p[0].left)
		}
	}
}
