package script

import (
	"strconv"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
)

// A read-write lock is a hash with a mode, read or write. Its readers are owners; its writer is
// one with a suffix. Each hold of a reader also has a key of its own, which lives as long as
// its lease: the lock's name in braces, the owner, and the number of the hold.
//
// A reader is an owner of its own also if it reads beside a writer of its process. In Redisson
// it would be the writer's owner, without the suffix; here each grant has a fresh one, so one
// that is in doubt is in doubt like any other. Redisson does not notice: to it an owner is a text.

// WriterSuffix is what the owners of write locks end with.
const WriterSuffix = ":write"

// The messages: a write lock ended, which all waiters are to hear, or a read lock. ForRedisson
// follows the former: there it is a 0 once more, and engines ignore it. See rwrelease.lua.
const (
	ReaderLeft  = "0"
	WriterLeft  = "1"
	ForRedisson = "00"
)

// TimeoutKey is the key of the reader's i-th hold, from 1 on.
func TimeoutKey(lock string, o Owner, i int) string {
	open, end := timeoutBase(lock)
	return open + lock + end + ":" + o.String() + timeoutInfix + strconv.Itoa(i)
}

// appendTimeoutKey appends it as a bulk string.
func appendTimeoutKey(dst []byte, lock string, o Owner, i int) []byte {
	var digits [20]byte
	number := strconv.AppendInt(digits[:0], int64(i), 10)
	open, end := timeoutBase(lock)
	dst = appendLength(dst, len(open)+len(lock)+len(end)+1+o.length()+len(timeoutInfix)+len(number))
	dst = append(dst, open...)
	dst = append(dst, lock...)
	dst = append(dst, end...)
	dst = append(dst, ':')
	dst = o.appendText(dst)
	dst = append(dst, timeoutInfix...)
	dst = append(dst, number...)
	return append(dst, '\r', '\n')
}

const timeoutInfix = ":rwlock_timeout:"

// timeoutBase is what surrounds the lock's name in those keys: braces, unless it has one already.
func timeoutBase(lock string) (open, end string) {
	if tagged(lock) {
		return "", ""
	}
	return "{", "}"
}

// appendTimeoutBase appends the beginning of those keys as a bulk string.
func appendTimeoutBase(dst []byte, lock string) []byte {
	open, end := timeoutBase(lock)
	dst = appendLength(dst, len(open)+len(lock)+len(end))
	dst = append(dst, open...)
	dst = append(dst, lock...)
	dst = append(dst, end...)
	return append(dst, '\r', '\n')
}

// AppendReadAcquire appends readacquire(owner, lease). A writer whose ID is not 0 does not keep
// the owner out; if it is not there the answer is NotThere.
func AppendReadAcquire(dst []byte, form resp.ScriptForm, key string, o Owner, lease time.Duration, writer Owner) []byte {
	dst = ReadAcquire.begin(dst, form, 2, 3)
	dst = wire.AppendBulk(dst, key)
	dst = appendTimeoutKey(dst, key, o, 1)
	dst = wire.AppendBulkInt(dst, Milliseconds(lease))
	dst = o.appendTo(dst)
	if writer.ID == 0 {
		return wire.AppendBulk(dst, "")
	}
	return writer.appendTo(dst)
}

// AppendReadReenter appends readreenter(owner, lease, count).
func AppendReadReenter(dst []byte, form resp.ScriptForm, key string, o Owner, lease time.Duration, count int) []byte {
	dst = ReadReenter.begin(dst, form, 2, 3)
	dst = wire.AppendBulk(dst, key)
	dst = appendTimeoutKey(dst, key, o, count)
	dst = wire.AppendBulkInt(dst, Milliseconds(lease))
	dst = o.appendTo(dst)
	return wire.AppendBulkInt(dst, int64(count))
}

// AppendReadLeave appends rwrelease(owner, count) with count >= 1, of a reader. If that makes the
// lock's time shorter, it announces itself on c.
func AppendReadLeave(dst []byte, form resp.ScriptForm, key string, o Owner, count int, c Channel) []byte {
	return appendRWRelease(dst, form, key, o, count, ReaderLeft, c)
}

// AppendReadRelease appends rwrelease(owner, 0) of a reader. The last one announces itself on c.
func AppendReadRelease(dst []byte, form resp.ScriptForm, key string, o Owner, c Channel) []byte {
	return appendRWRelease(dst, form, key, o, 0, ReaderLeft, c)
}

// AppendWriteRelease appends rwrelease(owner, 0) of a writer, which announces itself on c.
func AppendWriteRelease(dst []byte, form resp.ScriptForm, key string, o Owner, c Channel) []byte {
	return appendRWRelease(dst, form, key, o, 0, WriterLeft, c)
}

func appendRWRelease(dst []byte, form resp.ScriptForm, key string, o Owner, count int, message string, c Channel) []byte {
	dst = RWRelease.begin(dst, form, 1, 6)
	dst = wire.AppendBulk(dst, key)
	dst = o.appendTo(dst)
	return appendRWEnd(wire.AppendBulkInt(dst, int64(count)), key, message, c)
}

// appendRWEnd appends what rwrelease and rwforce have in common.
func appendRWEnd(dst []byte, key, message string, c Channel) []byte {
	dst = appendTimeoutBase(dst, key)
	dst = wire.AppendBulk(dst, message)
	return c.appendTo(dst)
}

// AppendWriteAcquire appends writeacquire(owner, lease).
func AppendWriteAcquire(dst []byte, form resp.ScriptForm, key string, o Owner, lease time.Duration) []byte {
	dst = WriteAcquire.begin(dst, form, 1, 2)
	dst = wire.AppendBulk(dst, key)
	dst = wire.AppendBulkInt(dst, Milliseconds(lease))
	return o.appendTo(dst)
}

// AppendWriteRetire appends writeretire(owner, rest): the lock stays taken for rest, by nobody. If
// it has readers, nobody is one of them.
func AppendWriteRetire(dst []byte, form resp.ScriptForm, key string, o, nobody Owner, rest time.Duration, c Channel) []byte {
	dst = WriteRetire.begin(dst, form, 1, 6)
	dst = wire.AppendBulk(dst, key)
	dst = o.appendTo(dst)
	dst = wire.AppendBulkInt(dst, Milliseconds(rest))
	dst = nobody.appendTo(dst)
	return appendTimeoutBase(c.appendTo(dst), key)
}

// AppendReadForce appends rwforce(any), of all readers. Of one alone it appends what releases
// that, so the others keep their locks.
func AppendReadForce(dst []byte, form resp.ScriptForm, key, owner string, c Channel) []byte {
	if owner == "" || owner == "mode" || strings.HasSuffix(owner, WriterSuffix) {
		return appendRWForce(dst, form, key, owner, "read", ReaderLeft, c)
	}
	dst = RWRelease.begin(dst, form, 1, 6)
	dst = wire.AppendBulk(dst, key)
	dst = wire.AppendBulk(dst, owner)
	return appendRWEnd(wire.AppendBulkInt(dst, 0), key, ReaderLeft, c)
}

// AppendWriteForce appends rwforce(owner or "") of a writer.
func AppendWriteForce(dst []byte, form resp.ScriptForm, key, owner string, c Channel) []byte {
	return appendRWForce(dst, form, key, owner, "write", WriterLeft, c)
}

func appendRWForce(dst []byte, form resp.ScriptForm, key, owner, mode, message string, c Channel) []byte {
	dst = RWForce.begin(dst, form, 1, 6)
	dst = wire.AppendBulk(dst, key)
	dst = wire.AppendBulk(dst, owner)
	return appendRWEnd(wire.AppendBulk(dst, mode), key, message, c)
}

// AppendReadRenew appends readrenew for every read lock of the list.
func AppendReadRenew(dst []byte, form resp.ScriptForm, list []Renewal) []byte {
	dst = ReadRenew.begin(dst, form, 2*len(list), 2*len(list))
	for i := range list {
		dst = wire.AppendBulk(dst, list[i].Key)
		dst = appendTimeoutKey(dst, list[i].Key, list[i].Owner, 1)
	}
	for i := range list {
		dst = wire.AppendBulkInt(dst, Milliseconds(list[i].Lease))
		dst = list[i].Owner.appendTo(dst)
	}
	return dst
}

// AppendRaise appends raise: what readrenew does with the timeout key of one read lock. renew does the
// rest. Either of them has one key only.
func AppendRaise(dst []byte, form resp.ScriptForm, one Renewal) []byte {
	dst = Raise.begin(dst, form, 1, 1)
	dst = appendTimeoutKey(dst, one.Key, one.Owner, 1)
	return wire.AppendBulkInt(dst, Milliseconds(one.Lease))
}
