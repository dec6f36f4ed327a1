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

// appendTo appends the owner as a bulk string.
func (o Owner) appendTo(dst []byte) []byte {
	dst = appendLength(dst, o.length())
	return append(o.appendText(dst), '\r', '\n')
}

// appendText appends the owner as String has it, and length is that of it.
func (o Owner) appendText(dst []byte) []byte {
	dst = append(dst, o.Engine...)
	dst = append(dst, ':')
	dst = strconv.AppendInt(dst, o.ID, 10)
	return append(dst, o.Suffix...)
}

func (o Owner) length() int {
	var digits [20]byte
	return len(o.Engine) + 1 + len(strconv.AppendInt(digits[:0], o.ID, 10)) + len(o.Suffix)
}

func appendLength(dst []byte, n int) []byte {
	dst = append(dst, '$')
	dst = strconv.AppendInt(dst, int64(n), 10)
	return append(dst, '\r', '\n')
}

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
	if tagged(lock) {
		return prefix + ":" + lock
	}
	return prefix + ":{" + lock + "}"
}

func tagged(lock string) bool { return strings.IndexByte(lock, '{') >= 0 }

// appendCompanion appends the name of one as a bulk string.
func appendCompanion(dst []byte, prefix, lock string) []byte {
	open, end := ":{", "}"
	if tagged(lock) {
		open, end = ":", ""
	}
	dst = appendLength(dst, len(prefix)+len(open)+len(lock)+len(end))
	dst = append(dst, prefix...)
	dst = append(dst, open...)
	dst = append(dst, lock...)
	dst = append(dst, end...)
	return append(dst, '\r', '\n')
}

// appendTo appends the name and the verb as two bulk strings.
func (c Channel) appendTo(dst []byte) []byte {
	return wire.AppendBulk(appendCompanion(dst, c.Prefix, c.Lock), c.Verb)
}

// AppendAcquire appends acquire(owner, lease).
func AppendAcquire(dst []byte, form resp.ScriptForm, key string, o Owner, lease time.Duration) []byte {
	dst = Acquire.begin(dst, form, 1, 2)
	dst = wire.AppendBulk(dst, key)
	dst = wire.AppendBulkInt(dst, Milliseconds(lease))
	return o.appendTo(dst)
}

// AppendReenter appends re-enter(owner, lease, count).
func AppendReenter(dst []byte, form resp.ScriptForm, key string, o Owner, lease time.Duration, count int) []byte {
	dst = Reenter.begin(dst, form, 1, 3)
	dst = wire.AppendBulk(dst, key)
	dst = wire.AppendBulkInt(dst, Milliseconds(lease))
	dst = o.appendTo(dst)
	return wire.AppendBulkInt(dst, int64(count))
}

// AppendLeave appends release(owner, count) with count >= 1.
func AppendLeave(dst []byte, form resp.ScriptForm, key string, o Owner, count int) []byte {
	dst = Leave.begin(dst, form, 1, 2)
	dst = wire.AppendBulk(dst, key)
	dst = o.appendTo(dst)
	return wire.AppendBulkInt(dst, int64(count))
}

// AppendRelease appends release(owner, 0), which announces itself on c.
func AppendRelease(dst []byte, form resp.ScriptForm, key string, o Owner, c Channel) []byte {
	dst = Release.begin(dst, form, 1, 3)
	dst = wire.AppendBulk(dst, key)
	dst = o.appendTo(dst)
	return c.appendTo(dst)
}

// AppendRetire appends retire(owner, rest): the lock stays taken for rest, by
// nobody. It announces itself on c.
func AppendRetire(dst []byte, form resp.ScriptForm, key string, o, nobody Owner, rest time.Duration, c Channel) []byte {
	dst = Retire.begin(dst, form, 1, 5)
	dst = wire.AppendBulk(dst, key)
	dst = o.appendTo(dst)
	dst = wire.AppendBulkInt(dst, Milliseconds(rest))
	dst = nobody.appendTo(dst)
	return c.appendTo(dst)
}

// AppendSeveral appends several: release(owner, 0) for each of the owners, and then
// acquire(taker, lease), if the lease is not 0, or fenced(taker, lease). It announces itself on c.
func AppendSeveral(dst []byte, form resp.ScriptForm, key string, owners []Owner, taker Owner, lease time.Duration, counts bool, c Channel) []byte {
	keys := 1
	if counts = counts && lease != 0; counts { // a release has one key: see release.lua
		keys = 2
	}
	dst = Several.begin(dst, form, keys, 4+len(owners))
	dst = wire.AppendBulk(dst, key)
	if counts {
		dst = appendCompanion(dst, TokenPrefix, key)
	}
	dst = c.appendTo(dst)
	dst = wire.AppendBulkInt(dst, Milliseconds(lease))
	if lease != 0 {
		dst = taker.appendTo(dst)
	} else {
		dst = wire.AppendBulk(dst, "")
	}
	for _, o := range owners {
		dst = o.appendTo(dst)
	}
	return dst
}

// AppendForce appends force(owner or ""), which announces itself on c.
func AppendForce(dst []byte, form resp.ScriptForm, key, owner string, c Channel) []byte {
	dst = Force.begin(dst, form, 1, 3)
	dst = wire.AppendBulk(dst, key)
	dst = wire.AppendBulk(dst, owner)
	return c.appendTo(dst)
}

// AppendState appends state().
func AppendState(dst []byte, form resp.ScriptForm, key string) []byte {
	dst = State.begin(dst, form, 1, 0)
	return wire.AppendBulk(dst, key)
}

// Renewal is one lock of a renew call.
type Renewal struct {
	Key   string
	Owner Owner
	Lease time.Duration
}

// AppendRenew appends renew for every lock of the list.
func AppendRenew(dst []byte, form resp.ScriptForm, list []Renewal) []byte {
	dst = Renew.begin(dst, form, len(list), 2*len(list))
	for i := range list {
		dst = wire.AppendBulk(dst, list[i].Key)
	}
	for i := range list {
		dst = wire.AppendBulkInt(dst, Milliseconds(list[i].Lease))
		dst = list[i].Owner.appendTo(dst)
	}
	return dst
}
