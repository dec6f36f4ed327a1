package inspect

import (
	"encoding/hex"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
)

// The kinds of what a server may have under a name, as far as it shows them. Nothing is also a latch
// that is open, and a semaphore without permits. A Mutex may be a fair lock for which nobody waits, and
// a Fenced lock may be held by somebody who takes it as a mutex: the keys are the same. A Count is that of a
// semaphore or of a latch, or of permits of which none is taken.
const (
	Nothing = ""
	Mutex   = "mutex"
	Fenced  = "fenced"
	Fair    = "fair"
	RW      = "read-write"
	Permits = "permits"
	Count   = "count"
)

// Keys is what the keys of a name say, beside who holds a lock.
type Keys struct {
	Kind      string
	Queue     int   // how many wait for a fair lock
	Token     int64 // the last fencing token; 0: there has been none
	Available int   // free permits
	Taken     []Permit
	Count     int // of a Count
	// Hidden is why the user may not see whether there is more; nil: there is not. QueueHidden is the
	// same of a queue.
	Hidden, QueueHidden error
}

// Permit is one that is taken. Its TTL is negative if it has no lease.
type Permit struct {
	ID  string
	TTL time.Duration
}

// Ask sends a command that only reads to the server of a name. The value is none if the server
// refuses, for that reason, or if there is no answer.
type Ask func(words ...string) (v resp.Value, refused, err error)

// OfLock reads what a lock may have beside its hash.
func OfLock(name, mode string, locked bool, ask Ask) (k Keys, err error) {
	if mode == "read" || mode == "write" {
		k.Kind = RW
		return k, nil
	}
	queue, refused, err := ask("LLEN", script.Companion("redisson_lock_queue", name))
	if err != nil {
		return k, err
	}
	k.QueueHidden, k.Hidden = refused, refused
	token, refused, err := ask("GET", script.Companion("redisson_lock_token", name))
	if err != nil {
		return k, err
	}
	if k.Hidden == nil {
		k.Hidden = refused
	}
	k.Queue, k.Token = int(queue.Int), number(token)
	switch {
	case k.Queue > 0:
		k.Kind = Fair
	case k.Token != 0:
		k.Kind = Fenced
	case locked:
		k.Kind = Mutex
	}
	return k, nil
}

// forever is the lease, in ms, from which on it counts as none: a Duration has no room for it.
// Redisson's permits without a lease have thirty thousand years.
const forever = math.MaxInt64 / int64(time.Millisecond)

// OfCount reads a number, and the permits of a semaphore, if any is taken. Permits whose lease has ended count
// as given back, as for everybody who asks for one. It is not ok if the key is no number.
func OfCount(name string, ask Ask) (k Keys, ok bool, refused, err error) {
	v, refused, err := ask("GET", name)
	if err != nil || refused != nil {
		return k, false, refused, err
	}
	n, failed := strconv.ParseInt(string(v.Bytes), 10, 64)
	if failed != nil {
		return k, false, nil, nil
	}
	k.Kind, k.Count = Count, int(n)
	// The clock comes first: what ends between the two is shown, and not counted twice.
	clock, refused, err := ask("TIME")
	if k.Hidden = refused; err != nil || refused != nil {
		return k, true, nil, err
	}
	held, refused, err := ask("ZRANGE", script.HeldPermits(name), "0", "-1", "WITHSCORES")
	if k.Hidden = refused; err != nil || refused != nil || held.Len() == 0 {
		return k, true, nil, err
	}
	k.Kind, k.Available, k.Count = Permits, k.Count, 0
	k.addPermits(held, float64(milliseconds(clock)))
	return k, true, nil, nil
}

// addPermits reads ids and the ends of their leases.
func (k *Keys) addPermits(held resp.Value, now float64) {
	var id []byte
	held.Each(func(i int, e resp.Value) bool {
		if i%2 == 0 {
			id = e.Bytes
			return true
		}
		switch end, err := strconv.ParseFloat(string(e.Bytes), 64); {
		case err != nil || end-now >= float64(forever):
			k.Taken = append(k.Taken, Permit{hex.EncodeToString(id), -1})
		case end <= now:
			k.Available++
		default:
			k.Taken = append(k.Taken, Permit{hex.EncodeToString(id), time.Duration((end - now) * float64(time.Millisecond))})
		}
		return true
	})
}

// milliseconds is the answer to TIME, in ms since 1970.
func milliseconds(v resp.Value) (ms int64) {
	v.Each(func(i int, e resp.Value) bool {
		if i == 0 {
			ms = 1000 * number(e)
		} else {
			ms += number(e) / 1000 // microseconds
		}
		return true
	})
	return ms
}

// number is that of a text; 0 if there is none.
func number(v resp.Value) int64 {
	n, _ := strconv.ParseInt(string(v.Bytes), 10, 64)
	return n
}

// Owner is a field of a lock's hash.
type Owner struct {
	ID    string
	Count int
}

// Owners reads the fields of a lock's hash. It is not ok if they are not those of a lock.
func Owners(fields resp.Value, from int) (owners []Owner, mode string, ok bool) {
	ok = fields.Kind == wire.KindArray && (fields.Len()-from)%2 == 0
	var field string
	fields.Each(func(i int, e resp.Value) bool {
		switch {
		case i < from:
		case (i-from)%2 == 0:
			field = string(e.Bytes)
		case field == "mode":
			mode = string(e.Bytes)
		default:
			count, err := strconv.Atoi(string(e.Bytes))
			ok = ok && err == nil
			owners = append(owners, Owner{field, count})
		}
		return true
	})
	return owners, mode, ok
}

// EngineOf is the id of the engine, or of the Redisson client, of an owner; "" if the owner has another
// form.
func EngineOf(owner string) string {
	id, _, ok := strings.Cut(owner, ":")
	if !ok {
		return ""
	}
	return id
}
