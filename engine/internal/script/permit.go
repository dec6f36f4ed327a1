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

func appendPermits(dst []byte, ids []PermitID) []byte {
	for i := range ids {
		dst = appendLength(dst, len(ids[i]))
		dst = append(append(dst, ids[i][:]...), '\r', '\n')
	}
	return dst
}

// appendHeld appends the key of the ids of a semaphore.
func appendHeld(dst []byte, key string) []byte { return wire.AppendBulk(dst, HeldPermits(key)) }

// HeldPermits is the key of the ids of a semaphore, after Redisson's rule.
func HeldPermits(key string) string {
	if tagged(key) {
		return key + ":timeout"
	}
	return "{" + key + "}:timeout"
}

// AppendPermitTake appends permittake(owner, lease). What comes back is announced on c.
func AppendPermitTake(dst []byte, form resp.ScriptForm, key string, o Owner, lease time.Duration, c Channel) []byte {
	ids := o.Permits()
	dst = PermitTake.begin(dst, form, 2, 3+len(ids))
	dst = appendHeld(wire.AppendBulk(dst, key), key)
	dst = wire.AppendBulkInt(dst, Milliseconds(lease))
	return appendPermits(c.appendTo(dst), ids)
}

// AppendPermitRelease appends permitfree(owner), which announces itself on c.
func AppendPermitRelease(dst []byte, form resp.ScriptForm, key string, o Owner, c Channel) []byte {
	return AppendPermitFree(dst, form, key, o.Permits(), c)
}

// AppendPermitFree appends permitfree(ids), which announces itself on c.
func AppendPermitFree(dst []byte, form resp.ScriptForm, key string, ids []PermitID, c Channel) []byte {
	dst = PermitFree.begin(dst, form, 2, 2+len(ids))
	dst = appendHeld(wire.AppendBulk(dst, key), key)
	return appendPermits(c.appendTo(dst), ids)
}

// AppendPermitRenew appends permitrenew for every owner of the list.
func AppendPermitRenew(dst []byte, form resp.ScriptForm, list []Renewal) []byte {
	args := 0
	for i := range list {
		args += 3 + int(list[i].Owner.ID&(MaxPermits-1))
	}
	dst = PermitRenew.begin(dst, form, len(list), args)
	for i := range list {
		dst = appendHeld(dst, list[i].Key)
	}
	for i := range list {
		ids := list[i].Owner.Permits()
		dst = wire.AppendBulkInt(dst, Milliseconds(list[i].Lease))
		dst = appendPermits(wire.AppendBulkInt(dst, int64(len(ids))), ids)
	}
	return dst
}

// What permitset does.
const (
	TryPermits = "try"
	SetPermits = "set"
	AddPermits = "add"
)

// AppendPermitSet appends permitset(what, n), which announces itself on c.
func AppendPermitSet(dst []byte, form resp.ScriptForm, key, what string, n int64, c Channel) []byte {
	dst = PermitSet.begin(dst, form, 2, 4)
	dst = appendHeld(wire.AppendBulk(dst, key), key)
	dst = wire.AppendBulkInt(wire.AppendBulk(dst, what), n)
	return c.appendTo(dst)
}

// AppendPermitCount appends permitcount(). What comes back is announced on c.
func AppendPermitCount(dst []byte, form resp.ScriptForm, key string, c Channel) []byte {
	dst = PermitCount.begin(dst, form, 2, 2)
	dst = appendHeld(wire.AppendBulk(dst, key), key)
	return c.appendTo(dst)
}
