package driver

import (
	"time"

	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/engine/internal/watchdog"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp"
)

// Grant is a grant of the core's with its place among the renewals. The shard's lock
// guards it.
type Grant struct {
	lock.Grant
	member watchdog.Member
}

// renewable is a grant under renewal: a watchdog.Renewable.
type renewable Grant

func (s *renewable) grant() *Grant { return (*Grant)(s) }
func (s *renewable) shard() *Shard { return ShardOf(s.Entry) }

// Until implements watchdog.Renewable.
func (s *renewable) Until() clock.Instant { return s.grant().ValidUntil() }

// Wants implements watchdog.Renewable.
func (s *renewable) Wants() resp.Acks { return resp.Acks(s.Acks) }

// Kind implements watchdog.Renewable.
func (s *renewable) Kind() kind.Renewal { return kind.Kind(s.grant().Kind).Renewal() }

// Renewal implements watchdog.Renewable.
func (s *renewable) Renewal(now clock.Instant) (script.Renewal, bool) {
	t, sh := s.grant(), s.shard()
	var rd lock.Ready
	sh.Lock()
	lease, ok := t.Grant.Renewal(now, &rd)
	var call script.Renewal
	if ok {
		call = script.Renewal{Key: t.Entry.Name, Owner: OwnerOf(t.Entry, t.Grant.Kind, t.ID), Lease: lease}
	}
	sh.Unlock()
	sh.Table.Apply(&rd)
	return call, ok
}

// Renewed implements watchdog.Renewable.
func (s *renewable) Renewed(sent, now clock.Instant, lease time.Duration, acked int) {
	t, sh := s.grant(), s.shard()
	var rd lock.Ready
	sh.Lock()
	if t.Grant.Renewed(sent, now, lease, acked, &rd) {
		t.Each(func(h *lock.Hold) { observerOf(h).Confirmed() })
	}
	sh.Unlock()
	sh.Table.Apply(&rd)
}

// Gone implements watchdog.Renewable.
func (s *renewable) Gone(code int64) {
	why := lock.RemovedOnServer
	if code == script.WrongType {
		why = lock.KeyOverwritten
	}
	s.shard().do(func(rd *lock.Ready) { s.grant().Grant.Gone(why, rd) })
}
