package script

import (
	"strconv"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/resp"
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
	open, end := braces(lock)
	return open + lock + end + ":" + o.String() + timeoutInfix + strconv.Itoa(i)
}

const timeoutInfix = ":rwlock_timeout:"

// timeoutKey appends that key.
func (c command) timeoutKey(lock string, o Owner, i int) command {
	var id, hold [20]byte
	open, end := braces(lock)
	return c.joined(open, lock, end, ":", o.Engine, ":", string(strconv.AppendInt(id[:0], o.ID, 10)), o.Suffix,
		timeoutInfix, string(strconv.AppendInt(hold[:0], int64(i), 10)))
}

// timeoutBase appends the beginning of those keys.
func (c command) timeoutBase(lock string) command {
	open, end := braces(lock)
	return c.joined(open, lock, end)
}

// AppendReadAcquire appends readacquire(owner, lease). A writer whose ID is not 0 does not keep
// the owner out; if it is not there the answer is NotThere.
func AppendReadAcquire(dst []byte, form resp.ScriptForm, key string, o Owner, lease time.Duration, writer Owner) []byte {
	return ReadAcquire.call(dst, form, 2, 3).text(key).timeoutKey(key, o, 1).milliseconds(lease).owner(o).ownerIf(writer.ID != 0, writer)
}

// AppendReadReenter appends readreenter(owner, lease, count).
func AppendReadReenter(dst []byte, form resp.ScriptForm, key string, o Owner, lease time.Duration, count int) []byte {
	return ReadReenter.call(dst, form, 2, 3).text(key).timeoutKey(key, o, count).milliseconds(lease).owner(o).number(int64(count))
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
	return RWRelease.call(dst, form, 1, 6).text(key).owner(o).number(int64(count)).rwEnd(key, message, c)
}

// rwEnd appends what rwrelease and rwforce have in common.
func (c command) rwEnd(key, message string, to Channel) command {
	return c.timeoutBase(key).text(message).channel(to)
}

// AppendWriteAcquire appends writeacquire(owner, lease).
func AppendWriteAcquire(dst []byte, form resp.ScriptForm, key string, o Owner, lease time.Duration) []byte {
	return WriteAcquire.call(dst, form, 1, 2).text(key).milliseconds(lease).owner(o)
}

// AppendWriteRetire appends writeretire(owner, rest): the lock stays taken for rest, by nobody. If
// it has readers, nobody is one of them.
func AppendWriteRetire(dst []byte, form resp.ScriptForm, key string, o, nobody Owner, rest time.Duration, c Channel) []byte {
	return WriteRetire.call(dst, form, 1, 6).text(key).owner(o).milliseconds(rest).owner(nobody).channel(c).timeoutBase(key)
}

// AppendReadForce appends rwforce(any), of all readers. Of one alone it appends what releases
// that, so the others keep their locks.
func AppendReadForce(dst []byte, form resp.ScriptForm, key, owner string, c Channel) []byte {
	if owner == "" || owner == "mode" || strings.HasSuffix(owner, WriterSuffix) {
		return appendRWForce(dst, form, key, owner, "read", ReaderLeft, c)
	}
	return RWRelease.call(dst, form, 1, 6).text(key).text(owner).number(0).rwEnd(key, ReaderLeft, c)
}

// AppendWriteForce appends rwforce(owner or "") of a writer.
func AppendWriteForce(dst []byte, form resp.ScriptForm, key, owner string, c Channel) []byte {
	return appendRWForce(dst, form, key, owner, "write", WriterLeft, c)
}

func appendRWForce(dst []byte, form resp.ScriptForm, key, owner, mode, message string, c Channel) []byte {
	return RWForce.call(dst, form, 1, 6).text(key).text(owner).text(mode).rwEnd(key, message, c)
}

// AppendReadRenew appends readrenew for every read lock of the list.
func AppendReadRenew(dst []byte, form resp.ScriptForm, list []Renewal) []byte {
	to := ReadRenew.call(dst, form, 2*len(list), 2*len(list))
	for i := range list {
		to = to.text(list[i].Key).timeoutKey(list[i].Key, list[i].Owner, 1)
	}
	return to.leases(list)
}

// AppendRaise appends raise: what readrenew does with the timeout key of one read lock. renew does the
// rest. Either of them has one key only.
func AppendRaise(dst []byte, form resp.ScriptForm, one Renewal) []byte {
	return Raise.call(dst, form, 1, 1).timeoutKey(one.Key, one.Owner, 1).milliseconds(one.Lease)
}
