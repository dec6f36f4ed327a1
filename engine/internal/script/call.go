package script

import (
	"strconv"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
)

// Owner is who holds a lock, on the wire "<engine>:<id>": the engine's UUID and
// the number of one outermost acquisition, never used again.
type Owner struct {
	Engine string
	ID     int64
	Suffix string // WriterSuffix for who writes under a read-write lock, else ""
}

// String returns the owner as it stands in the lock's hash.
func (o Owner) String() string { return o.Engine + ":" + strconv.FormatInt(o.ID, 10) + o.Suffix }

// Milliseconds rounds up: a lease must not turn into PEXPIRE 0, which deletes.
func Milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// Channel is where the end of a lock is announced, and by which command: PUBLISH,
// SPUBLISH, or "" for a lock whose waiters poll.
type Channel struct {
	Prefix string
	Lock   string
	Verb   string
}

// Name returns the channel's name.
func (c Channel) Name() string { return Companion(c.Prefix, c.Lock) }

// Companion names a key or a channel that belongs to a lock, after Redisson's rule: the
// lock's name in braces, unless it has a brace already.
func Companion(prefix, lock string) string {
	open, end := braces(lock)
	return prefix + ":" + open + lock + end
}

// braces are what surrounds a lock's name in the names of its companions.
func braces(lock string) (open, end string) {
	if strings.IndexByte(lock, '{') >= 0 {
		return "", ""
	}
	return "{", "}"
}

// command is one as far as it is encoded. Its keys and arguments are appended in their order, one bulk
// string each.
type command []byte

// call appends the head of a call with the given numbers of keys and arguments.
func (s *Script) call(dst []byte, form resp.ScriptForm, keys, args int) command {
	dst = wire.AppendArrayHeader(dst, 3+keys+args)
	return command(append(dst, s.verb[form]...)).number(int64(keys))
}

func (c command) text(s string) command  { return wire.AppendBulk(c, s) }
func (c command) number(n int64) command { return wire.AppendBulkInt(c, n) }

// flag appends 1 or an empty string.
func (c command) flag(yes bool) command {
	if yes {
		return c.text("1")
	}
	return c.text("")
}

// milliseconds appends a duration; see Milliseconds.
func (c command) milliseconds(d time.Duration) command { return c.number(Milliseconds(d)) }

// joined appends one bulk string that is made of parts.
func (c command) joined(parts ...string) command {
	n := 0
	for _, part := range parts {
		n += len(part)
	}
	c = append(strconv.AppendInt(append(c, '$'), int64(n), 10), '\r', '\n')
	for _, part := range parts {
		c = append(c, part...)
	}
	return append(c, '\r', '\n')
}

// owner appends an owner as String has it.
func (c command) owner(o Owner) command {
	var digits [20]byte
	return c.joined(o.Engine, ":", string(strconv.AppendInt(digits[:0], o.ID, 10)), o.Suffix)
}

// ownerIf appends an owner, or an empty string if there is none.
func (c command) ownerIf(is bool, o Owner) command {
	if is {
		return c.owner(o)
	}
	return c.text("")
}

// companion appends the name of one.
func (c command) companion(prefix, lock string) command {
	open, end := braces(lock)
	return c.joined(prefix, ":", open, lock, end)
}

// channel appends the name of a channel and the verb.
func (c command) channel(to Channel) command { return c.companion(to.Prefix, to.Lock).text(to.Verb) }

// AppendAcquire appends acquire(owner, lease).
func AppendAcquire(dst []byte, form resp.ScriptForm, key string, o Owner, lease time.Duration) []byte {
	return Acquire.call(dst, form, 1, 2).text(key).milliseconds(lease).owner(o)
}

// AppendReenter appends re-enter(owner, lease, count).
func AppendReenter(dst []byte, form resp.ScriptForm, key string, o Owner, lease time.Duration, count int) []byte {
	return Reenter.call(dst, form, 1, 3).text(key).milliseconds(lease).owner(o).number(int64(count))
}

// AppendLeave appends release(owner, count) with count >= 1.
func AppendLeave(dst []byte, form resp.ScriptForm, key string, o Owner, count int) []byte {
	return Leave.call(dst, form, 1, 2).text(key).owner(o).number(int64(count))
}

// AppendRelease appends release(owner, 0), which announces itself on c.
func AppendRelease(dst []byte, form resp.ScriptForm, key string, o Owner, c Channel) []byte {
	return Release.call(dst, form, 1, 3).text(key).owner(o).channel(c)
}

// AppendRetire appends retire(owner, rest): the lock stays taken for rest, by
// nobody. It announces itself on c.
func AppendRetire(dst []byte, form resp.ScriptForm, key string, o, nobody Owner, rest time.Duration, c Channel) []byte {
	return Retire.call(dst, form, 1, 5).text(key).owner(o).milliseconds(rest).owner(nobody).channel(c)
}

// AppendSeveral appends several: release(owner, 0) for each of the owners, and then
// acquire(taker, lease), if the lease is not 0, or fenced(taker, lease). It announces itself on c.
func AppendSeveral(dst []byte, form resp.ScriptForm, key string, owners []Owner, taker Owner, lease time.Duration, counts bool, c Channel) []byte {
	keys := 1
	if counts = counts && lease != 0; counts { // a release has one key: see release.lua
		keys = 2
	}
	to := Several.call(dst, form, keys, 4+len(owners)).text(key)
	if counts {
		to = to.companion(TokenPrefix, key)
	}
	to = to.channel(c).milliseconds(lease).ownerIf(lease != 0, taker)
	for _, o := range owners {
		to = to.owner(o)
	}
	return to
}

// AppendForce appends force(owner or ""), which announces itself on c.
func AppendForce(dst []byte, form resp.ScriptForm, key, owner string, c Channel) []byte {
	return Force.call(dst, form, 1, 3).text(key).text(owner).channel(c)
}

// AppendState appends state().
func AppendState(dst []byte, form resp.ScriptForm, key string) []byte {
	return State.call(dst, form, 1, 0).text(key)
}

// Renewal is one lock of a renew call.
type Renewal struct {
	Key   string
	Owner Owner
	Lease time.Duration
}

// AppendRenew appends renew for every lock of the list.
func AppendRenew(dst []byte, form resp.ScriptForm, list []Renewal) []byte {
	to := Renew.call(dst, form, len(list), 2*len(list))
	for i := range list {
		to = to.text(list[i].Key)
	}
	return to.leases(list)
}

// leases appends what is renewed, behind the keys.
func (c command) leases(list []Renewal) command {
	for i := range list {
		c = c.milliseconds(list[i].Lease).owner(list[i].Owner)
	}
	return c
}
