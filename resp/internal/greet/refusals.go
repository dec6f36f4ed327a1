package greet

import (
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/internal/exchange"
	"github.com/pawl-lock/pawl/resp/wire"
)

// Refusals remembers which servers refuse the credentials, so that they are tried ever
// more seldom, by all connections together: a client that goes on trying a wrong password is
// locked out in some places, and fills logs in all. The first pauses are short, for the
// password may be in the middle of a change. Once one connection gets through, the
// others follow at once: lanes without renewals would lose what they acquire.
type Refusals struct {
	clock clock.Clock
	mu    struct {
		sync.Mutex
		standing map[refusedAs]refusal // at most maxStanding
	}
}

// refusedAs is a server, and what a connection to it was to be for if that counts: the
// commands that a user may not execute are not the same for all.
type refusedAs struct {
	addr    string
	purpose Purpose // anyPurpose: whatever it is for
}

// anyPurpose stands for all.
const anyPurpose = Purpose(255)

type refusal struct {
	err   error
	pause time.Duration // the longest that until may be away
	until clock.Instant
}

const (
	minPause = time.Second
	// MaxPause is the longest pause between two attempts.
	MaxPause    = 30 * time.Second
	maxStanding = 1024
)

// NewRefusals returns one that knows of none.
func NewRefusals(c clock.Clock) *Refusals {
	r := &Refusals{clock: c}
	r.mu.standing = make(map[refusedAs]refusal)
	return r
}

// Check returns the refusal that stands, if there is one: then nothing is to be tried.
func (r *Refusals) Check(addr string, p Purpose) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	for _, as := range []refusedAs{{addr, anyPurpose}, {addr, p}} {
		if s, ok := r.mu.standing[as]; ok && now.Before(s.until) {
			return s.err
		}
	}
	return nil
}

// Note takes down how an attempt ended. One that began beside another counts with it.
func (r *Refusals) Note(addr string, p Purpose, began clock.Instant, err error) {
	var e *wire.ServerError
	refused := Unauthorized(err) // not under mu: it may be an error of a Dialer's own
	forbidden := refused && errors.As(err, &e) && exchange.RefusalOf(e).Forbidden()
	as := refusedAs{addr, anyPurpose}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !refused:
		delete(r.mu.standing, as)
		delete(r.mu.standing, refusedAs{addr, p})
		return
	case forbidden: // so the password is right
		delete(r.mu.standing, as)
		as.purpose = p
	}
	before, again := r.mu.standing[as]
	if again && began.Before(before.until) {
		return
	}
	if len(r.mu.standing) >= maxStanding {
		clear(r.mu.standing) // servers announce ever new addresses
	}
	pause := min(max(minPause, 2*before.pause), MaxPause)
	r.mu.standing[as] = refusal{err, pause, r.clock.Now().Add(pause/2 + rand.N(pause/2))}
}
