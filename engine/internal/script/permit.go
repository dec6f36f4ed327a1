package script

import (
	"encoding/binary"
	"encoding/hex"
	"hash/fnv"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
)

// PermitChannel is the prefix of where permits are announced, as Redisson has it.
const PermitChannel = "redisson_sc"

// MaxPermits is how many permits an owner can have.
const MaxPermits = 1 << permitBits

const permitBits = 8

// PermitID is the id of a permit on the server.
type PermitID [16]byte

// Permits returns the ids of an owner's permits, none of which another owner has: the first half of the
// engine's id, but for one byte, which of them it is, and the owner's number. The last byte of that says
// how many they are besides the first.
func (o Owner) Permits() []PermitID {
	var id PermitID
	copy(id[:permitIndex], enginePart(o.Engine))
	binary.BigEndian.PutUint64(id[8:], uint64(o.ID))
	ids := make([]PermitID, 1+o.ID&(MaxPermits-1))
	for i := range ids {
		id[permitIndex] = byte(i)
		ids[i] = id
	}
	return ids
}

// permitIndex is the byte of an id that says which of its owner's permits it is.
const permitIndex = 7

// enginePart is the first bytes of an engine's id. That is a UUID, of which all but four bits are random. A test
// may have any text.
func enginePart(engine string) []byte {
	if raw, err := hex.DecodeString(strings.ReplaceAll(engine, "-", "")); err == nil && len(raw) > permitIndex {
		return raw[:permitIndex]
	}
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(engine))
	return sum.Sum(nil)[:permitIndex]
}

// PermitPrefix is what the id of an engine, and the ids of its permits, in hexadecimal digits, have in common.
func PermitPrefix(id string) string {
	id = strings.ReplaceAll(id, "-", "")
	return id[:min(len(id), 2*permitIndex)]
}

// SamePermits reports whether an id is one of so many that begin with first.
func SamePermits(id, first string, n int) bool {
	const digits, at = 2 * len(PermitID{}), 2 * permitIndex
	if len(id) != digits || len(first) != digits || id[:at] != first[:at] || id[at+2:] != first[at+2:] {
		return false
	}
	i, err := hex.DecodeString(id[at : at+2])
	return err == nil && int(i[0]) < n
}

func (c command) permits(ids []PermitID) command {
	for i := range ids {
		c = wire.AppendBulkBytes(c, ids[i][:])
	}
	return c
}

// HeldPermits is the key of the ids of a semaphore, after Redisson's rule.
func HeldPermits(key string) string {
	open, end := braces(key)
	return open + key + end + ":timeout"
}

// held appends that key.
func (c command) held(key string) command {
	open, end := braces(key)
	return c.joined(open, key, end, ":timeout")
}

// AppendPermitTake appends permittake(owner, lease). What comes back is announced on c.
func AppendPermitTake(dst []byte, form resp.ScriptForm, key string, o Owner, lease time.Duration, c Channel) []byte {
	ids := o.Permits()
	return PermitTake.call(dst, form, 2, 3+len(ids)).text(key).held(key).milliseconds(lease).channel(c).permits(ids)
}

// AppendPermitRelease appends permitfree(owner), which announces itself on c.
func AppendPermitRelease(dst []byte, form resp.ScriptForm, key string, o Owner, c Channel) []byte {
	return AppendPermitFree(dst, form, key, o.Permits(), c)
}

// AppendPermitFree appends permitfree(ids), which announces itself on c.
func AppendPermitFree(dst []byte, form resp.ScriptForm, key string, ids []PermitID, c Channel) []byte {
	return PermitFree.call(dst, form, 2, 2+len(ids)).text(key).held(key).channel(c).permits(ids)
}

// AppendPermitRenew appends permitrenew for every owner of the list.
func AppendPermitRenew(dst []byte, form resp.ScriptForm, list []Renewal) []byte {
	args := 0
	for i := range list {
		args += 3 + int(list[i].Owner.ID&(MaxPermits-1))
	}
	to := PermitRenew.call(dst, form, len(list), args)
	for i := range list {
		to = to.held(list[i].Key)
	}
	for i := range list {
		ids := list[i].Owner.Permits()
		to = to.milliseconds(list[i].Lease).number(int64(len(ids))).permits(ids)
	}
	return to
}

// What permitset does.
const (
	TryPermits = "try"
	SetPermits = "set"
	AddPermits = "add"
)

// AppendPermitSet appends permitset(what, n), which announces itself on c.
func AppendPermitSet(dst []byte, form resp.ScriptForm, key, what string, n int64, c Channel) []byte {
	return PermitSet.call(dst, form, 2, 4).text(key).held(key).text(what).number(n).channel(c)
}

// AppendPermitCount appends permitcount(). What comes back is announced on c.
func AppendPermitCount(dst []byte, form resp.ScriptForm, key string, c Channel) []byte {
	return PermitCount.call(dst, form, 2, 2).text(key).held(key).channel(c)
}
