package script

import (
	"bufio"
	"fmt"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/resp"
)

// Whoever finds the lock free tells the head; if nobody hears that, those behind it, up to one who
// is heard, or who asks now itself. Threads of Redisson behind the head are told last.
func TestWhoLearnsThatTheLockIsFree(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	listener, err := net.Dial("tcp", c.s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	confirmed := bufio.NewReader(listener)
	for _, heard := range []Owner{ann, jan} {
		if _, err := fmt.Fprintf(listener, "SUBSCRIBE %s\r\n", queue(true).ChannelOf(heard)); err != nil {
			t.Fatal(err)
		}
		for range 6 { // lines of the confirmation
			if _, err := confirmed.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
	}
	dan := Owner{Engine: other.Engine, ID: cid.ID + 1}
	var long []place
	for i := range 120 {
		long = append(long, place{Owner{Engine: other.Engine, ID: dan.ID + int64(i+1)}, 20})
	}
	ask, release, force := fair(queue(true), true), fairRelease(queue(true), 0), fairForce(queue(true), "")
	for _, x := range []struct {
		name     string
		queue    []place
		encode   func([]byte, resp.ScriptForm) []byte
		notified int64
	}{
		{"the head is heard", []place{{ann, 20}, {ben, 30}}, release, 1},
		{"the second is heard", []place{{ben, 20}, {ann, 30}, {cid, 40}}, release, 2},
		{"one far behind is heard", append(long, place{ann, 20}, place{cid, 20}), release, 121},
		{"nobody is heard", []place{{ben, 20}, {cid, 30}}, force, 2},
		{"the second asks", []place{{ben, 20}, {me, 30}, {cid, 40}}, ask, 1},
		{"the first asks whom nobody has heard yet", []place{{ben, 20}, {cid, 30}}, ask, 2},
		{"one of ours behind a thread is heard", []place{{ben, 20}, {jim, 30}, {ann, 40}}, release, 2},
		{"the first thread is heard", []place{{ben, 20}, {jan, 30}, {jim, 40}}, release, 2},
		{"the second thread is heard", []place{{ben, 20}, {jim, 30}, {jan, 40}}, force, 3},
		{"threads before the one that asks are not told", []place{{ben, 20}, {jan, 30}, {me, 40}}, ask, 1},
		{"one asks, and behind a thread nobody was told", []place{{jim, 20}, {ben, 20}, {cid, 20}, {me, 20}}, ask, 3},
		{"one asks, and the thread was told before", []place{{jim, 2}, {ben, 20}, {cid, 20}, {me, 20}}, ask, 1},
		{"the first leaves", []place{{me, 20}, {ben, 20}, {ann, 30}}, release, 2},
		{"one that was told leaves, behind others that have been told", []place{{ben, 2}, {cid, 2}, {me, 20}, {dan, 2}, {ann, 30}}, release, 4},
		{"one that was told leaves, and a thread before it was not", []place{{ben, 2}, {jan, 20}, {me, 30}}, release, 2},
	} {
		c.lineUp("absent", x.queue)
		before := c.s.CommandStats()["publish"]
		if _, err := c.run(x.encode); err != nil {
			t.Fatal(err)
		}
		if n := c.s.CommandStats()["publish"] - before; n != x.notified {
			t.Errorf("%s: %d are told, want %d", x.name, n, x.notified)
		}
	}
}

// Whoever comes nearer has room for the lease and for its place. Of a long queue only the first are
// looked at, unless the first or the last one of the rest has far too much.
func TestThoseThatComeNearerHaveRoomForTheirPlaces(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	const size = 60
	for state, x := range map[string]struct {
		call  func([]byte, resp.ScriptForm) []byte
		lease float64
	}{
		"absent": {fair(queue(false), true), 9}, "others": {fairRelease(queue(false), 0), 5},
	} {
		// All may have one place in fifty too much, which is 12 s here: not 13, at one of the places.
		for _, much := range []int{0, 51, 55, size} {
			var line []place
			for i := range size {
				p := place{Owner{Engine: other.Engine, ID: ann.ID + int64(i)}, 11 + x.lease + float64(i+1)*10}
				if i+1 == much {
					p.left += 2
				}
				line = append(line, p)
			}
			c.lineUp(state, append([]place{{me, 100}}, line...))
			if _, err := c.run(x.call); err != nil {
				t.Fatal(err)
			}
			now := milliseconds(c.s)
			for i, p := range line {
				score, _ := strconv.ParseFloat(c.s.Do("ZSCORE", timeoutName, p.owner.String()).(string), 64)
				want := x.lease + float64(i+1)*10
				if i >= 50 && much != 51 && much != size {
					want = p.left
				}
				if left := (score - now) / 1000; left > want || left < want-1 {
					t.Errorf("%s, place %d has too much: the place %d has %.1f s, want %.0f", state, much, i+1, left, want)
				}
			}
		}
	}
}

// One that leaves from far behind gives nobody before it more time.
func TestOneThatLeavesFromFarBehindChangesNothingBeforeIt(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	var line []place
	for i := range 50 {
		line = append(line, place{Owner{Engine: other.Engine, ID: ann.ID + int64(i)}, 20})
	}
	c.lineUp("others", append(slices.Clone(line), place{me, 20}, place{ben, 5000}))
	scores := make([]any, len(line))
	for i, p := range line {
		scores[i] = c.s.Do("ZSCORE", timeoutName, p.owner.String())
	}
	if _, err := c.run(fairRelease(queue(false), 0)); err != nil {
		t.Fatal(err)
	}
	for i, p := range line {
		if after := c.s.Do("ZSCORE", timeoutName, p.owner.String()); after != scores[i] {
			t.Errorf("the place %d had %v, and has %v", i+1, scores[i], after)
		}
	}
}

// Redisson's grant takes a room away from all others. One of ours that nobody has heard yet keeps its place
// when a thread before it has had its turn.
func TestOneBehindAThreadKeepsItsPlaceInItsTurn(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	for name, x := range map[string]fairRow{
		"a release":         {"", "me", []place{{jan, 20}, {ann, 30}, {ben, 40}}, fairRelease(queue(true), 0), Done, "", []place{{jan, 3}, {ann, 30}, {ben, 40}}},
		"one of ours first": {"", "me", []place{{ann, 20}, {ben, 30}, {jan, 40}, {cid, 50}}, fairRelease(queue(true), 0), Done, "", []place{{ann, 3}, {ben, 3}, {jan, 40}, {cid, 50}}},
		"one that asks":     {"", "absent", []place{{jan, 20}, {ann, 30}, {ben, 40}}, fair(queue(true), false), 100, "", []place{{jan, 3}, {ann, 30}, {ben, 40}}},
		"a leave":           {"", "absent", []place{{ann, 2}, {jan, 20}, {me, 30}, {cid, 40}}, fairRelease(queue(true), 0), NotThere, "", []place{{ann, 2}, {jan, 20}, {cid, 30}}},
		"a force-unlock":    {"", "others", []place{{jan, 20}, {ann, 30}}, fairForce(queue(true), ""), Done, "", []place{{jan, 3}, {ann, 30}}},
	} {
		x.name = name
		x.check(t, c)
	}
}

// A waiter of ours sleeps for ten seconds at most. So long it is waited for, however short FairWaitTimeout is.
func TestWhoComesNearerHasTimeToAsk(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	q := queue(false)
	q.Room = time.Second
	x := fairRow{"the lease, and ten seconds", "absent", []place{{me, 100}, {ann, 300}}, fair(q, true), Granted, me.String(), []place{{ann, 19}}}
	x.check(t, c)
}

// However short FairWaitTimeout is, a long queue is not written at each leave.
func TestALeaveWritesTheFirstFewAlsoIfPlacesCountLittle(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	q := queue(false)
	q.Room = 100 * time.Millisecond
	line := []place{{me, 20}}
	for i := range 300 {
		line = append(line, place{Owner{Engine: other.Engine, ID: ann.ID + int64(i)}, 14})
	}
	c.lineUp("others", line)
	before := c.s.CommandStats()["zadd"]
	if _, err := c.run(fairRelease(q, 0)); err != nil {
		t.Fatal(err)
	}
	if n := c.s.CommandStats()["zadd"] - before; n > 50 {
		t.Errorf("it writes %d times", n)
	}
}
