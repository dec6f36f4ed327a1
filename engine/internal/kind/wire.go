package kind

import (
	"math"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/resp"
	respwire "github.com/pawl-lock/pawl/resp/wire"
)

// wire is how the commands of a kind are encoded: those of package script, mostly.
type wire struct {
	acquire func(dst []byte, form resp.ScriptForm, key string, o script.Owner, lease time.Duration) []byte
	// take is instead of acquire for one that announces something.
	take    func(dst []byte, form resp.ScriptForm, key string, o script.Owner, lease time.Duration, c script.Channel) []byte
	reenter func(dst []byte, form resp.ScriptForm, key string, o script.Owner, lease time.Duration, count int) []byte
	leave   func(dst []byte, form resp.ScriptForm, key string, o script.Owner, count int, c script.Channel) []byte
	release func(dst []byte, form resp.ScriptForm, key string, o script.Owner, c script.Channel) []byte
	retire  func(dst []byte, form resp.ScriptForm, key string, o, nobody script.Owner, rest time.Duration, c script.Channel) []byte
	force   func(dst []byte, form resp.ScriptForm, key, owner string, c script.Channel) []byte
	renewal Renewal
	counts  bool // acquire answers with a fencing token
	// beside takes a lock that another owner of its process has, if the kind can.
	beside func(dst []byte, form resp.ScriptForm, key string, o script.Owner, lease time.Duration, other script.Owner) []byte
}

// hash are the commands for owners that are the fields of a hash.
var hash = wire{
	acquire: script.AppendAcquire,
	reenter: script.AppendReenter,
	leave: func(dst []byte, form resp.ScriptForm, key string, o script.Owner, count int, _ script.Channel) []byte {
		return script.AppendLeave(dst, form, key, o, count)
	},
	release: script.AppendRelease,
	retire:  script.AppendRetire,
	force:   script.AppendForce,
	renewal: RenewsHash,
}

// AppendAcquire encodes the taking of a free lock, by an owner that is used for nothing else. If
// there is anything to announce, that is with a verb.
func (k Kind) AppendAcquire(dst []byte, form resp.ScriptForm, key string, o script.Owner, lease time.Duration, verb string) []byte {
	if take := table[k].take; take != nil {
		return take(dst, form, key, o, lease, k.Channel(key, verb))
	}
	return table[k].acquire(dst, form, key, o, lease)
}

// AppendReenter encodes that the owner takes the lock once more; count is that afterwards.
func (k Kind) AppendReenter(dst []byte, form resp.ScriptForm, key string, o script.Owner, lease time.Duration, count int) []byte {
	return table[k].reenter(dst, form, key, o, lease, count)
}

// AppendBeside encodes the taking of a lock that is free, or that the other owner has.
func (k Kind) AppendBeside(dst []byte, form resp.ScriptForm, key string, o script.Owner, lease time.Duration, other script.Owner) []byte {
	return table[k].beside(dst, form, key, o, lease, other)
}

// AppendLeave encodes that one of several holds is given back; count is that afterwards. If
// others wait for less by that, it is announced with a verb.
func (k Kind) AppendLeave(dst []byte, form resp.ScriptForm, key string, o script.Owner, count int, verb string) []byte {
	return table[k].leave(dst, form, key, o, count, k.Channel(key, verb))
}

// AppendRelease encodes the end of the owner's last hold. It is announced with a verb.
func (k Kind) AppendRelease(dst []byte, form resp.ScriptForm, key string, o script.Owner, verb string) []byte {
	return table[k].release(dst, form, key, o, k.Channel(key, verb))
}

// AppendRetire encodes the same, but nobody has the lock for the rest.
func (k Kind) AppendRetire(dst []byte, form resp.ScriptForm, key string, o, nobody script.Owner, rest time.Duration, verb string) []byte {
	return table[k].retire(dst, form, key, o, nobody, rest, k.Channel(key, verb))
}

// AppendForce encodes that the lock is taken away, from that owner or from any.
func (k Kind) AppendForce(dst []byte, form resp.ScriptForm, key, owner, verb string) []byte {
	return table[k].force(dst, form, key, owner, k.Channel(key, verb))
}

// AppendSeveral encodes the release of owners, and then the taking of the lock, if the lease is not 0.
// If nobody takes it, that is announced with a verb.
func (k Kind) AppendSeveral(dst []byte, form resp.ScriptForm, key string, owners []script.Owner, taker script.Owner, lease time.Duration, verb string) []byte {
	return script.AppendSeveral(dst, form, key, owners, taker, lease, table[k].counts, k.Channel(key, verb))
}

// AppendJoin encodes the taking of a lock by an owner in the queue of those that wait.
func (k Kind) AppendJoin(dst []byte, form resp.ScriptForm, q script.Queue, o script.Owner, lease time.Duration, first uint32) []byte {
	return script.AppendJoin(dst, form, q, o, lease, table[k].counts, first)
}

// Answer is what an acquire says.
type Answer struct {
	Code   resp.Value // granted, or what the holder's lease has left; the zero Value: no script says that
	Token  int64      // of a grant: the fencing token, if the kind has one
	Holder []byte     // of a refusal: the holder, if it says who that is
	Behind int        // see lock.Outcome
	First  uint32     // see lock.Outcome
}

// Granted takes the answer to an acquire apart.
func (k Kind) Granted(v resp.Value) (a Answer) {
	if v.Kind == respwire.KindInt && !table[k].counts {
		return Answer{Code: v, Behind: lock.InFront}
	}
	if v.Kind != respwire.KindArray || v.Len() < 2 || v.Len() > 4 {
		return Answer{}
	}
	a.Behind = lock.InFront // as one that does not queue
	for i, e := range v.Each {
		refused := a.Code.Int != script.Granted
		switch {
		case i == 0:
			a.Code = e
		case i == 1 && e.Kind == respwire.KindBulk && refused:
			a.Holder = e.Bytes
		case i == 1 && e.Kind == respwire.KindInt && !refused && table[k].counts:
			a.Token = e.Int
		case i == 2 && e.Kind == respwire.KindInt && refused && e.Int >= lock.InFront && e.Int <= math.MaxInt32:
			a.Behind = int(e.Int)
		case i == 3 && e.Kind == respwire.KindInt && refused && e.Int > 0 && e.Int <= math.MaxUint32:
			a.First = uint32(e.Int)
		default:
			return Answer{}
		}
	}
	return a
}

// Renewal is how grants of a kind are renewed. Those with the same one share scripts.
type Renewal uint8

// The renewals; package watchdog has room for four.
const (
	RenewsHash Renewal = iota
	RenewsReaders
	RenewsPermits
	Renewals = iota
)

var renewals = [Renewals]func(dst []byte, form resp.ScriptForm, list []script.Renewal) []byte{
	RenewsHash:    script.AppendRenew,
	RenewsReaders: script.AppendReadRenew,
	RenewsPermits: script.AppendPermitRenew,
}

// keyByKey is the same for one grant in several commands of one key each.
//
// The hash of readers is first, since it tells whether the reader has gone, and once more at the
// end: between the first command and the second, another reader may leave. It finds the
// timeout key as it was, and makes the time of the hash as short as that.
var keyByKey = [Renewals][]func(dst []byte, form resp.ScriptForm, one script.Renewal) []byte{
	RenewsReaders: {appendRenewOne, script.AppendRaise, appendRenewOne},
}

func appendRenewOne(dst []byte, form resp.ScriptForm, one script.Renewal) []byte {
	return script.AppendRenew(dst, form, []script.Renewal{one})
}

// Renewal is that of the kind.
func (k Kind) Renewal() Renewal { return table[k].renewal }

// Append encodes the renewal of a list.
func (n Renewal) Append(dst []byte, form resp.ScriptForm, list []script.Renewal) []byte {
	return renewals[n](dst, form, list)
}

// Steps is how many commands renew one grant key by key; 0 if it has one key only.
func (n Renewal) Steps() int { return len(keyByKey[n]) }

// AppendStep encodes one of them, from 1 on.
func (n Renewal) AppendStep(dst []byte, form resp.ScriptForm, one script.Renewal, step int) []byte {
	return keyByKey[n][step-1](dst, form, one)
}
