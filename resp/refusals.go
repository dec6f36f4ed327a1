package resp

import (
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

// refusals remembers which servers refuse the credentials, so that they are tried ever
// more seldom, by all connections together: a client that goes on trying a wrong password is
// locked out in some places, and fills logs in all. The first pauses are short, for the
// password may be in the middle of a change. Once one connection gets through, the
// others follow at once: lanes without renewals would lose what they acquire.
type refusals struct {
	clock clock.Clock
	mu    struct {
		sync.Mutex
		standing map[refusedAs]refusal // at most maxStanding
	}
}

// refusedAs is a server, and what a connection to it was to be for if that counts: the
// commands that a user may not execute are not the same for all.
type refusedAs struct {
	addr string
	role Role // roleAny: whatever it is for
}

// roleAny stands for all roles.
const roleAny = Role(255)

type refusal struct {
	err   error
	pause time.Duration // the longest that until may be away
	until clock.Instant
}

const (
	minRefusalPause = time.Second
	maxRefusalPause = 30 * time.Second
	maxStanding     = 1024
)

func newRefusals(c clock.Clock) *refusals {
	r := &refusals{clock: c}
	r.mu.standing = make(map[refusedAs]refusal)
	return r
}

// check returns the refusal that stands, if there is one: then nothing is to be tried.
func (r *refusals) check(addr string, role Role) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	for _, as := range []refusedAs{{addr, roleAny}, {addr, role}} {
		if s, ok := r.mu.standing[as]; ok && now.Before(s.until) {
			return s.err
		}
	}
	return nil
}

// note takes down how an attempt ended. One that began beside another counts with it.
func (r *refusals) note(addr string, role Role, began clock.Instant, err error) {
	var e *ServerError
	refused := unauthorized(err) // not under mu: it may be an error of a Dialer's own
	forbidden := refused && errors.As(err, &e) && e.Code == "NOPERM"
	as := refusedAs{addr, roleAny}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !refused:
		delete(r.mu.standing, as)
		delete(r.mu.standing, refusedAs{addr, role})
		return
	case forbidden: // so the password is right
		delete(r.mu.standing, as)
		as.role = role
	}
	before, again := r.mu.standing[as]
	if again && began.Before(before.until) {
		return
	}
	if len(r.mu.standing) >= maxStanding {
		clear(r.mu.standing) // servers announce ever new addresses
	}
	pause := min(max(minRefusalPause, 2*before.pause), maxRefusalPause)
	r.mu.standing[as] = refusal{err, pause, r.clock.Now().Add(pause/2 + rand.N(pause/2))}
}
