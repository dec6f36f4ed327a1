package script

import (
	"strconv"
	"time"

	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
)

// Owner is who holds a lock, on the wire "<engine>:<id>": the engine's UUID and
// the number of one outermost acquisition, never used again.
type Owner struct {
	Engine string
	ID     int64
}

// String returns the owner as it stands in the lock's hash.
func (o Owner) String() string { return o.Engine + ":" + strconv.FormatInt(o.ID, 10) }

// appendTo appends the owner as a bulk string.
func (o Owner) appendTo(dst []byte) []byte {
	var digits [20]byte
	id := strconv.AppendInt(digits[:0], o.ID, 10)
	dst = appendLength(dst, len(o.Engine)+1+len(id))
	dst = append(dst, o.Engine...)
	dst = append(dst, ':')
	dst = append(dst, id...)
	return append(dst, '\r', '\n')
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
// SPUBLISH, BOTH, or "" for a lock whose waiters poll. Its name on the wire follows
// Redisson's rule: the lock's name in braces, unless it has a brace already.
type Channel struct {
	Prefix string
	Lock   string
	Verb   string
}

func (c Channel) tagged() bool {
	for i := 0; i < len(c.Lock); i++ {
		if c.Lock[i] == '{' {
			return true
		}
	}
	return false
}

// Name returns the channel's name.
func (c Channel) Name() string {
	if c.tagged() {
		return c.Prefix + ":" + c.Lock
	}
	return c.Prefix + ":{" + c.Lock + "}"
}

// appendTo appends the name and the verb as two bulk strings.
func (c Channel) appendTo(dst []byte) []byte {
	if c.tagged() {
		dst = appendLength(dst, len(c.Prefix)+1+len(c.Lock))
		dst = append(dst, c.Prefix...)
		dst = append(dst, ':')
		dst = append(dst, c.Lock...)
	} else {
		dst = appendLength(dst, len(c.Prefix)+3+len(c.Lock))
		dst = append(dst, c.Prefix...)
		dst = append(dst, ':', '{')
		dst = append(dst, c.Lock...)
		dst = append(dst, '}')
	}
	dst = append(dst, '\r', '\n')
	return wire.AppendBulk(dst, c.Verb)
}

// AppendAcquire appends acquire(owner, lease).
func AppendAcquire(dst []byte, form resp.Form, key string, o Owner, lease time.Duration) []byte {
	dst = Acquire.begin(dst, form, 1, 2)
	dst = wire.AppendBulk(dst, key)
	dst = wire.AppendBulkInt(dst, Milliseconds(lease))
	return o.appendTo(dst)
}

// AppendReenter appends re-enter(owner, lease, count).
func AppendReenter(dst []byte, form resp.Form, key string, o Owner, lease time.Duration, count int) []byte {
	dst = Reenter.begin(dst, form, 1, 3)
	dst = wire.AppendBulk(dst, key)
	dst = wire.AppendBulkInt(dst, Milliseconds(lease))
	dst = o.appendTo(dst)
	return wire.AppendBulkInt(dst, int64(count))
}

// AppendLeave appends release(owner, count) with count >= 1.
func AppendLeave(dst []byte, form resp.Form, key string, o Owner, count int) []byte {
	dst = Leave.begin(dst, form, 1, 2)
	dst = wire.AppendBulk(dst, key)
	dst = o.appendTo(dst)
	return wire.AppendBulkInt(dst, int64(count))
}

// AppendRelease appends release(owner, 0), which announces itself on c.
func AppendRelease(dst []byte, form resp.Form, key string, o Owner, c Channel) []byte {
	dst = Release.begin(dst, form, 1, 3)
	dst = wire.AppendBulk(dst, key)
	dst = o.appendTo(dst)
	return c.appendTo(dst)
}

// AppendRetire appends retire(owner, rest): the lock stays taken for rest, by
// nobody. It announces itself on c.
func AppendRetire(dst []byte, form resp.Form, key string, o, nobody Owner, rest time.Duration, c Channel) []byte {
	dst = Retire.begin(dst, form, 1, 5)
	dst = wire.AppendBulk(dst, key)
	dst = o.appendTo(dst)
	dst = wire.AppendBulkInt(dst, Milliseconds(rest))
	dst = nobody.appendTo(dst)
	return c.appendTo(dst)
}

// AppendForce appends force(owner or ""), which announces itself on c.
func AppendForce(dst []byte, form resp.Form, key, owner string, c Channel) []byte {
	dst = Force.begin(dst, form, 1, 3)
	dst = wire.AppendBulk(dst, key)
	dst = wire.AppendBulk(dst, owner)
	return c.appendTo(dst)
}

// AppendState appends state().
func AppendState(dst []byte, form resp.Form, key string) []byte {
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
func AppendRenew(dst []byte, form resp.Form, list []Renewal) []byte {
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
