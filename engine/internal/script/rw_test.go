package script

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
)

var (
	writer      = Owner{Engine: me.Engine, ID: 7, Suffix: WriterSuffix}
	otherWriter = Owner{Engine: other.Engine, ID: 8, Suffix: WriterSuffix}
	idle        = Owner{Engine: me.Engine, ID: -7} // nobody, among readers
	rwWake      = Channel{Prefix: "redisson_rwlock", Lock: lockName, Verb: "PUBLISH"}
)

// rw is what a read-write lock is made of: fields and milliseconds for the hash, and
// milliseconds of timeout keys.
type rw struct {
	fields   string // "mode:read e1 2"; "": there is none
	left     int64
	timeouts map[string]int64 // "me 1", "other 1"
}

func (x rw) set(s *redistest.Server) {
	s.Do("FLUSHALL")
	if x.fields != "" {
		s.Do(append([]string{"HSET", lockName}, named(x.fields)...)...)
		if x.left != 0 {
			s.Do("PEXPIRE", lockName, strconv.FormatInt(x.left, 10))
		}
	}
	for key, left := range x.timeouts {
		s.Do("SET", timeoutNamed(key), "1", "PX", strconv.FormatInt(left, 10))
	}
}

// named puts owners in the place of their short names.
func named(fields string) []string {
	return strings.Fields(strings.NewReplacer("me:write", writer.String(), "other:write", otherWriter.String(),
		"nobody", Owner{me.Engine, -7, WriterSuffix}.String(), "idle", idle.String(), "me", me.String(), "other", other.String(), "mode:", "mode ").Replace(fields))
}

func timeoutNamed(key string) string {
	owner, i, _ := strings.Cut(key, " ")
	n, _ := strconv.Atoi(i)
	return TimeoutKey(lockName, map[string]Owner{"me": me, "other": other, "idle": idle}[owner], n)
}

// differs says how the server differs from x, to half a second.
func (x rw) differs(s *redistest.Server) string {
	var text []string
	list, _ := s.Do("HGETALL", lockName).([]any)
	var has, wants []string
	for i := 0; i < len(list); i += 2 {
		has = append(has, fmt.Sprint(list[i], "=", list[i+1]))
	}
	want := named(x.fields)
	for i := 0; i < len(want); i += 2 {
		wants = append(wants, want[i]+"="+want[i+1])
	}
	slices.Sort(has)
	slices.Sort(wants)
	if !slices.Equal(has, wants) {
		text = append(text, fmt.Sprintf("the fields are %v, want %v", has, wants))
	}
	lasts := func(key string, want int64) {
		if left := s.Do("PTTL", key).(int64); left > want || left < want-500 {
			text = append(text, fmt.Sprintf("%s has %d ms, want %d", key, left, want))
		}
	}
	if x.fields != "" {
		lasts(lockName, x.left)
	}
	for key, left := range x.timeouts {
		lasts(timeoutNamed(key), left)
	}
	keys := len(x.timeouts)
	if x.fields != "" {
		keys++
	}
	if n := s.Do("DBSIZE").(int64); n != int64(keys) {
		text = append(text, fmt.Sprintf("%d keys, want %d: %v", n, keys, s.Do("KEYS", "*")))
	}
	return strings.Join(text, "; ")
}

// The calls of the tables.

type encoder = func([]byte, resp.ScriptForm) []byte

func readAcquire(o Owner, lease time.Duration, beside Owner) encoder {
	return func(b []byte, f resp.ScriptForm) []byte { return AppendReadAcquire(b, f, lockName, o, lease, beside) }
}
func readReenter(o Owner, lease time.Duration, n int) encoder {
	return func(b []byte, f resp.ScriptForm) []byte { return AppendReadReenter(b, f, lockName, o, lease, n) }
}
func readLeave(o Owner, n int) encoder {
	return func(b []byte, f resp.ScriptForm) []byte { return AppendReadLeave(b, f, lockName, o, n, rwWake) }
}
func readRelease(b []byte, f resp.ScriptForm) []byte {
	return AppendReadRelease(b, f, lockName, me, rwWake)
}
func readRenew(o Owner, lease time.Duration) encoder {
	return func(b []byte, f resp.ScriptForm) []byte {
		return AppendReadRenew(b, f, []Renewal{{lockName, o, lease}})
	}
}
func raise(lease time.Duration) encoder {
	return func(b []byte, f resp.ScriptForm) []byte { return AppendRaise(b, f, Renewal{lockName, me, lease}) }
}
func readForce(owner string) encoder {
	return func(b []byte, f resp.ScriptForm) []byte { return AppendReadForce(b, f, lockName, owner, rwWake) }
}
func write(lease time.Duration) encoder {
	return func(b []byte, f resp.ScriptForm) []byte { return AppendWriteAcquire(b, f, lockName, writer, lease) }
}
func writeRelease(b []byte, f resp.ScriptForm) []byte {
	return AppendWriteRelease(b, f, lockName, writer, rwWake)
}
func writeRetire(rest time.Duration) encoder {
	return func(b []byte, f resp.ScriptForm) []byte {
		return AppendWriteRetire(b, f, lockName, writer, Owner{me.Engine, -7, WriterSuffix}, rest, rwWake)
	}
}
func writeForce(owner string) encoder {
	return func(b []byte, f resp.ScriptForm) []byte { return AppendWriteForce(b, f, lockName, owner, rwWake) }
}

// rwCalls are all of them, for the tests of what a server may refuse.
var rwCalls = map[string]encoder{
	"readacquire": readAcquire(me, time.Second, Owner{}), "readreenter": readReenter(me, time.Second, 2), "leave a re-entry": readLeave(me, 1),
	"read release": readRelease, "read force": readForce(""), "read force, if held by me": readForce(me.String()),
	"writeacquire": write(time.Second), "write release": writeRelease, "writeretire": writeRetire(time.Second),
	"write force": writeForce(""), "write force, if held by me": writeForce(writer.String()),
}

// A server without memory refuses what takes a lock, and nothing else.
func TestServerWithoutMemoryRefusesNoGivingBackOfAReadWriteLock(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	read := rw{"mode:read me 1", 5000, map[string]int64{"me 1": 5000}}
	readTwice := rw{"mode:read me 2", 5000, map[string]int64{"me 1": 5000, "me 2": 5000}}
	wrote := rw{"mode:write me:write 1 me 1", 5000, map[string]int64{"me 1": 5000}}
	for _, x := range []struct {
		name          string
		before, after rw
		call          encoder
		refused       bool
	}{
		{"readacquire", rw{}, rw{}, readAcquire(me, time.Second, Owner{}), true},
		{"readreenter", read, read, readReenter(me, time.Second, 2), true},
		{"leave", readTwice, read, readLeave(me, 1), false},
		{"read release", read, rw{}, readRelease, false},
		{"renew", read, read, readRenew(me, time.Second), false},
		{"writeacquire", rw{}, rw{}, write(time.Second), true},
		{"write release", wrote, read, writeRelease, false},
		{"writeretire", rw{"mode:write me:write 1", 5000, nil}, rw{"mode:write nobody 1", 1000, nil}, writeRetire(time.Second), false},
		{"force", wrote, rw{}, writeForce(""), false},
	} {
		x.before.set(c.s)
		c.s.Do("CONFIG", "SET", "maxmemory", "1")
		_, err := c.run(x.call)
		c.s.Do("CONFIG", "SET", "maxmemory", "0")
		var refused *resp.ServerError
		if x.refused != (errors.As(err, &refused) && refused.Code == "OOM") || !x.refused && err != nil {
			t.Errorf("%s: %v", x.name, err)
		}
		if text := x.after.differs(c.s); text != "" {
			t.Errorf("%s: %s", x.name, text)
		}
	}
}

// Who may not write all of it gets no lock, and leaves none without an expiry.
func TestAReadWriteLockThatIsRefusedIsNotGranted(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	for _, x := range []struct {
		name, right string
		call        encoder
	}{
		{"read", "pexpire", readAcquire(me, time.Second, Owner{})},
		{"read", "hset", readAcquire(me, time.Second, Owner{})},
		{"read", "hsetnx", readAcquire(me, time.Second, Owner{})},
		{"write", "pexpire", write(time.Second)},
		{"write", "hset", write(time.Second)},
	} {
		c.s.Do("FLUSHALL")
		c.s.Do("ACL", "SETUSER", "default", "-"+x.right)
		_, err := c.run(x.call)
		c.s.Do("ACL", "SETUSER", "default", "+@all")
		var refused *resp.ServerError
		if err != nil && !errors.As(err, &refused) || err == nil && x.right != "hsetnx" {
			t.Errorf("%s without %s: %v, want a refusal", x.name, x.right, err)
		}
		if left := c.s.Do("PTTL", lockName); left == int64(-1) {
			t.Errorf("%s without %s left %v for good", x.name, x.right, c.s.Do("HGETALL", lockName))
		}
	}
}

// What the scripts of a read-write lock do, cell by cell.
func TestDecisionTableOfAReadWriteLock(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	const s3, s9 = 3 * time.Second, 9 * time.Second
	type ms = map[string]int64
	var (
		free       = rw{}
		lock       = rw{"me 1", 5000, nil} // a Mutex: it has no mode
		reads      = rw{"mode:read me 1", 5000, ms{"me 1": 5000}}
		othersRead = rw{"mode:read other 1", 5000, ms{"other 1": 5000}}
		bothRead   = rw{"mode:read me 1 other 1", 5000, ms{"me 1": 5000, "other 1": 5000}}
		writes     = rw{"mode:write me:write 1", 5000, nil}
		othersWr   = rw{"mode:write other:write 1", 5000, nil}
		readsInWr  = rw{"mode:write me:write 1 me 1", 5000, ms{"me 1": 3000}}
	)
	for _, x := range []struct {
		name     string
		before   rw
		call     encoder
		reply    int64
		after    rw
		messages string // those that are published
	}{
		{"read a free lock", free, readAcquire(me, s9, Owner{}), Granted, rw{"mode:read me 1", 9000, ms{"me 1": 9000}}, ""},
		{"read beside others", othersRead, readAcquire(me, s9, Owner{}), Granted, rw{"mode:read me 1 other 1", 9000, ms{"me 1": 9000, "other 1": 5000}}, ""},
		{"read shorter than others", othersRead, readAcquire(me, s3, Owner{}), Granted, rw{"mode:read me 1 other 1", 5000, ms{"me 1": 3000, "other 1": 5000}}, ""},
		{"read, repeated", reads, readAcquire(me, s9, Owner{}), Granted, rw{"mode:read me 1", 9000, ms{"me 1": 9000}}, ""},
		{"read, repeated after a re-entry", rw{"mode:read me 3", 5000, ms{"me 1": 5000}}, readAcquire(me, s3, Owner{}), Granted, rw{"mode:read me 3", 5000, ms{"me 1": 5000}}, ""},
		{"read what is written", othersWr, readAcquire(me, s9, Owner{}), anyTTL, othersWr, ""},
		{"read beside one's writer", writes, readAcquire(me, s9, writer), Granted, rw{"mode:write me:write 1 me 1", 9000, ms{"me 1": 9000}}, ""},
		{"read beside one's writer, again", readsInWr, readAcquire(me, s9, Owner{}), Granted, rw{"mode:write me:write 1 me 1", 9000, ms{"me 1": 9000}}, ""},
		{"read beside a writer that is gone", othersWr, readAcquire(me, s9, writer), NotThere, othersWr, ""},
		{"read beside a writer that is gone, free", free, readAcquire(me, s9, writer), NotThere, free, ""},
		{"read beside a writer that left, others read", othersRead, readAcquire(me, s9, writer), NotThere, othersRead, ""},
		{"read beside a writer that left, again", reads, readAcquire(me, s9, writer), Granted, rw{"mode:read me 1", 9000, ms{"me 1": 9000}}, ""},
		{"read a Mutex", rw{"other 1", 5000, nil}, readAcquire(me, s9, Owner{}), anyTTL, rw{"other 1", 5000, nil}, ""},

		{"write a free lock", free, write(s9), Granted, rw{"mode:write me:write 1", 9000, nil}, ""},
		{"write, repeated", writes, write(s9), Granted, rw{"mode:write me:write 1", 9000, nil}, ""},
		{"write, repeated with a shorter lease", writes, write(s3), Granted, writes, ""},
		{"write what is read", othersRead, write(s9), anyTTL, othersRead, ""},
		{"write what is written", othersWr, write(s9), anyTTL, othersWr, ""},
		{"write a Mutex", lock, write(s9), anyTTL, lock, ""},

		{"re-enter a read lock", reads, readReenter(me, s9, 2), Granted, rw{"mode:read me 2", 9000, ms{"me 1": 5000, "me 2": 9000}}, ""},
		{"re-enter a read lock for less", reads, readReenter(me, s3, 2), Granted, rw{"mode:read me 2", 5000, ms{"me 1": 5000, "me 2": 3000}}, ""},
		{"re-enter, repeated for less", rw{"mode:read me 2", 9000, ms{"me 1": 5000, "me 2": 9000}}, readReenter(me, s3, 2), Granted, rw{"mode:read me 2", 9000, ms{"me 1": 5000, "me 2": 9000}}, ""},
		{"re-enter what is free", free, readReenter(me, s9, 2), NotThere, free, ""},
		{"re-enter what others read", othersRead, readReenter(me, s9, 2), NotThere, othersRead, ""},

		{"leave a re-entry that was longer", rw{"mode:read me 2", 9000, ms{"me 1": 5000, "me 2": 9000}}, readLeave(me, 1), Done, reads, "0"},
		{"leave a re-entry that was not", rw{"mode:read me 2", 5000, ms{"me 1": 5000, "me 2": 3000}}, readLeave(me, 1), Done, reads, ""},
		{"leave several at once", rw{"mode:read me 3", 5000, ms{"me 1": 5000, "me 2": 3000, "me 3": 1000}}, readLeave(me, 1), Done, reads, ""},
		{"leave what others read", othersRead, readLeave(me, 1), NotThere, othersRead, ""},

		{"the last reader leaves", reads, readRelease, Done, free, "0"},
		{"a reader leaves with its re-entries", rw{"mode:read me 2", 5000, ms{"me 1": 5000, "me 2": 3000}}, readRelease, Done, free, "0"},
		{"one of two leaves", bothRead, readRelease, Done, othersRead, ""},
		{"the longer of two leaves", rw{"mode:read me 1 other 1", 9000, ms{"me 1": 9000, "other 1": 5000}}, readRelease, Done, othersRead, "0"},
		{"who leaves finds only the dead", rw{"mode:read me 1 other 1", 9000, ms{"me 1": 9000}}, readRelease, Done, free, "0"},
		{"a reader leaves its writer", readsInWr, readRelease, Done, writes, ""},
		{"who leaves was not there", othersRead, readRelease, NotThere, othersRead, ""},
		{"who leaves was removed by Redisson, but for its timeout keys", rw{"", 0, ms{"me 1": 5000, "me 2": 3000}}, readRelease, NotThere, free, ""},
		{"a reader leaves what was deleted", free, readRelease, NotThere, free, ""},
		{"the same, and others read by now", rw{"mode:read other 1", 5000, ms{"me 1": 5000, "other 1": 5000}}, readRelease, NotThere, othersRead, ""},

		{"a writer leaves", writes, writeRelease, Done, free, "1 00"},
		{"a writer leaves its reader", readsInWr, writeRelease, Done, rw{"mode:read me 1", 3000, ms{"me 1": 3000}}, "1 00"},
		{"a writer leaves a dead reader", rw{"mode:write me:write 1 me 1", 5000, nil}, writeRelease, Done, free, "1 00"},
		{"a writer leaves that was not there", reads, writeRelease, NotThere, reads, ""},
		{"a writer leaves what was deleted", free, writeRelease, NotThere, free, ""},
		{"a writer retires from what was deleted", free, writeRetire(s3), NotThere, free, ""},
		{"a writer retires", writes, writeRetire(s3), Done, rw{"mode:write nobody 1", 3000, nil}, "1 00"},
		{"a writer retires beside a reader", readsInWr, writeRetire(s3), Done, rw{"mode:read idle 1 me 1", 3000, ms{"me 1": 3000, "idle 1": 3000}}, "1 00"},
		{"a writer retires beside a reader, for a shorter time", readsInWr, writeRetire(time.Second), Done, rw{"mode:read idle 1 me 1", 3000, ms{"me 1": 3000, "idle 1": 1000}}, "1 00"},
		{"a writer retires beside a reader, for longer", readsInWr, writeRetire(s9), Done, rw{"mode:read idle 1 me 1", 9000, ms{"me 1": 3000, "idle 1": 9000}}, "1 00"},
		{"a reader leaves a writer that has retired", rw{"mode:read idle 1 me 1", 9000, ms{"me 1": 9000, "idle 1": 5000}}, readRelease, Done, rw{"mode:read idle 1", 5000, ms{"idle 1": 5000}}, "0"},
		{"a reader leaves a writer whose rest is over", rw{"mode:read idle 1 me 1", 9000, ms{"me 1": 9000}}, readRelease, Done, free, "0"},
		{"a writer retires that was not there", reads, writeRetire(s3), NotThere, reads, ""},

		{"renew a reader", bothRead, readRenew(me, s9), Renewed, rw{"mode:read me 1 other 1", 9000, ms{"me 1": 9000, "other 1": 5000}}, ""},
		{"renew a reader for less than others have", bothRead, readRenew(me, s3), Renewed, bothRead, ""},
		{"renew a reader whose timeout key was evicted", rw{"mode:read me 1", 5000, nil}, readRenew(me, s9), Renewed, rw{"mode:read me 1", 9000, ms{"me 1": 9000}}, ""},
		{"renew a reader that is gone", othersRead, readRenew(me, s9), Gone, othersRead, ""},
		{"renew a reader of a free lock", free, readRenew(me, s9), Gone, free, ""},
		{"renew a timeout key alone", reads, raise(s9), Renewed, rw{"mode:read me 1", 5000, ms{"me 1": 9000}}, ""},
		{"renew a timeout key that is not there", othersRead, raise(s9), Refused, othersRead, ""},

		{"take away read locks", bothRead, readForce(""), Done, free, "0"},
		{"take away one read lock", bothRead, readForce(me.String()), Done, othersRead, ""},
		{"take away the read lock of nobody", othersRead, readForce(me.String()), NotThere, othersRead, ""},
		{"take away a read lock that is the mode", reads, readForce("mode"), 0, reads, ""},
		{"take away the read lock of a writer", writes, readForce(writer.String()), 0, writes, ""},
		{"take away read locks of what is written", othersWr, readForce(""), 0, othersWr, ""},
		{"take away read locks of what is free", free, readForce(""), 0, free, ""},
		{"take away the write lock of what is free", free, writeForce(""), 0, free, ""},
		{"take away the write lock", readsInWr, writeForce(""), Done, free, "1 00"},
		{"take away the write lock, if it is mine", othersWr, writeForce(writer.String()), 0, othersWr, ""},
		{"take away the write lock, if a reader beside the writer has it", readsInWr, writeForce(me.String()), 0, readsInWr, ""},
		{"take away the write lock of what is read", bothRead, writeForce(""), 0, bothRead, ""},
	} {
		t.Run(x.name, func(t *testing.T) {
			x.before.set(c.s)
			heard := messagesOn(t, c.s, rwWake.Name())
			v, err := c.run(x.call)
			if err != nil {
				t.Fatal(err)
			}
			got := v.Int
			if v.Kind == wire.KindArray {
				v.Each(func(_ int, e resp.Value) bool { got = e.Int; return true })
			}
			if x.reply == anyTTL && (got < 4000 || got > 5000) || x.reply != anyTTL && got != x.reply {
				t.Errorf("reply %d, want %d", got, x.reply)
			}
			if text := x.after.differs(c.s); text != "" {
				t.Error(text)
			}
			if messages := heard(); messages != x.messages {
				t.Errorf("the messages are %q, want %q", messages, x.messages)
			}
		})
	}
}

// messagesOn listens to a channel. What it returns says what has been published there.
func messagesOn(t *testing.T, s *redistest.Server, channel string) (heard func() string) {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	var buf []byte
	next := func() (words []string) {
		for {
			if v, n, err := wire.Decode(buf); err == nil && n > 0 {
				v.Each(func(_ int, e resp.Value) bool { words = append(words, string(e.Bytes)); return true })
				buf = buf[n:]
				return words
			}
			more := make([]byte, 1024)
			n, err := conn.Read(more)
			if err != nil {
				t.Fatal(err)
			}
			buf = append(buf, more[:n]...)
		}
	}
	ask := func(words ...string) {
		if _, err := conn.Write(wire.AppendCommand(nil, words...)); err != nil {
			t.Fatal(err)
		}
	}
	ask("SUBSCRIBE", channel)
	next()
	return func() (messages string) {
		for ask("PING"); ; {
			words := next()
			if words[0] == "pong" {
				return messages
			}
			messages = strings.TrimSpace(messages + " " + words[2])
		}
	}
}

// A name with braces has its tag; without, the keys beside the hash have it in braces.
func TestTimeoutKeysAreRedissons(t *testing.T) {
	t.Parallel()
	for lock, want := range map[string]string{
		"orders": "{orders}:e:5:rwlock_timeout:2", "a{b}c": "a{b}c:e:5:rwlock_timeout:2",
	} {
		if got := TimeoutKey(lock, Owner{Engine: "e", ID: 5}, 2); got != want {
			t.Errorf("%q: %q, want %q", lock, got, want)
		}
		if got := string(command(nil).timeoutKey(lock, Owner{Engine: "e", ID: 5}, 2)); got != fmt.Sprintf("$%d\r\n%s\r\n", len(want), want) {
			t.Errorf("%q: %q", lock, got)
		}
	}
}
