package handshake

import (
	"errors"
	"hash/maphash"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/wire"
)

// AuthBackoff remembers which servers refuse which credentials, so that these are tried ever
// more seldom, by all connections together: a client that goes on trying a wrong password is
// locked out in some places, and fills logs in all. The first pauses are short, for the
// password may be in the middle of a change. Once one connection gets through, the
// others follow at once: lanes without renewals would lose what they acquire.
//
// A pause belongs to the credentials that were refused. Config.Credentials is asked for others
// once a second while a refusal stands, and these are tried at once:
//
//	a connection             another one           Credentials      the server
//	old ones -------------------------------------------------->    WRONGPASS: they pause
//	                         asks: the old ones
//	within that second: the same refusal
//	asks a second later: new ones --------------------------------> up: nothing stands any more
//	                         follows
type AuthBackoff struct {
	clock clock.Clock
	limit func() time.Duration
	mu    struct {
		sync.Mutex
		active map[refusedAs]*refusal // at most maxActive
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

// refusal is that of the latest credentials.
type refusal struct {
	err         error
	credentials Credentials
	longest     time.Duration // of which pause is a random part
	pause       time.Duration
	noted       clock.Instant // the pause counts from here
	asked       clock.Instant // when credentials were asked for, or noted
}

// Credentials tell pairs of user and password apart, and nothing of them. 0 is none that was
// asked for.
type Credentials uint64

var seed = maphash.MakeSeed()

// CredentialsOf returns those of a user and a password.
func CredentialsOf(user, password string) Credentials {
	return Credentials(max(1, maphash.Comparable(seed, [2]string{user, password})))
}

const (
	minPause = time.Second
	// MaxPause is the longest pause between two attempts.
	MaxPause = 30 * time.Second
	// askEvery is the shortest time between two calls of Config.Credentials while a refusal
	// stands.
	askEvery  = time.Second
	maxActive = 1024
)

// NewAuthBackoff returns one that knows of none. limit, if it is set and not 0 at a moment, bounds
// every pause.
func NewAuthBackoff(c clock.Clock, limit func() time.Duration) *AuthBackoff {
	r := &AuthBackoff{clock: c, limit: limit}
	r.mu.active = make(map[refusedAs]*refusal)
	return r
}

// limited is a pause as it is at this moment.
func limited(pause, limit time.Duration) time.Duration {
	if limit > 0 {
		return min(pause, limit)
	}
	return pause
}

func (r *AuthBackoff) limitNow() time.Duration {
	if r.limit == nil {
		return 0
	}
	return r.limit()
}

// Ask returns the refusal that stands, if credentials were asked for a moment ago. Otherwise the
// caller may ask for them, and Check what it gets.
func (r *AuthBackoff) Ask(addr string, p Purpose) error {
	limit := r.limitNow()
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	if s := r.latestLocked(addr, p); s != nil && now.Before(s.asked.Add(limited(askEvery, limit))) {
		return s.err
	}
	for _, as := range []refusedAs{{addr, anyPurpose}, {addr, p}} {
		if s := r.mu.active[as]; s != nil {
			s.asked = now
		}
	}
	return nil
}

// Left is how long it is until credentials may be asked for; 0 if no refusal stands.
func (r *AuthBackoff) Left(addr string, p Purpose) time.Duration {
	limit := r.limitNow()
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.latestLocked(addr, p); s != nil {
		return max(s.asked.Add(limited(askEvery, limit)).Sub(r.clock.Now()), 0)
	}
	return 0
}

// latestLocked is the refusal since which credentials were asked for last.
func (r *AuthBackoff) latestLocked(addr string, p Purpose) *refusal {
	s := r.mu.active[refusedAs{addr, p}]
	if all := r.mu.active[refusedAs{addr, anyPurpose}]; all != nil && (s == nil || s.asked < all.asked) {
		return all
	}
	return s
}

// Check returns the refusal of these credentials that stands, if there is one: then nothing is
// to be tried.
func (r *AuthBackoff) Check(addr string, p Purpose, c Credentials) error {
	limit := r.limitNow()
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	for _, as := range []refusedAs{{addr, anyPurpose}, {addr, p}} {
		if s := r.mu.active[as]; s != nil && s.credentials == c && now.Before(s.noted.Add(limited(s.pause, limit))) {
			return s.err
		}
	}
	return nil
}

// Note takes down how an attempt with these credentials ended. One that began beside another
// counts with it.
func (r *AuthBackoff) Note(addr string, p Purpose, c Credentials, began clock.Instant, err error) {
	var e *wire.ServerError
	refused := Unauthorized(err) // not under mu: it may be an error of a Dialer's own
	forbidden := refused && errors.As(err, &e) && request.RefusalOf(e).Forbidden()
	as := refusedAs{addr, anyPurpose}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !refused:
		delete(r.mu.active, as)
		delete(r.mu.active, refusedAs{addr, p})
		return
	case forbidden: // so the password is right
		delete(r.mu.active, as)
		as.purpose = p
	}
	before := r.mu.active[as]
	if before != nil && began.Before(before.noted) {
		return
	}
	if len(r.mu.active) >= maxActive {
		clear(r.mu.active) // servers announce ever new addresses
	}
	now := r.clock.Now()
	s := &refusal{err: err, credentials: c, longest: minPause, noted: now, asked: now}
	if before != nil && before.credentials == c {
		s.longest = min(2*before.longest, MaxPause)
	}
	s.pause = s.longest/2 + rand.N(s.longest/2)
	r.mu.active[as] = s
}
