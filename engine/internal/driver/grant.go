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

// Grant is a grant of the core's with its place among the renewals: a watchdog.Renewable. The shard's lock
// guards it.
type Grant struct {
	lock.Grant
	member watchdog.Member
}

// The methods below implement watchdog.Renewable.

func (t *Grant) Until() clock.Instant { return t.ValidUntil() }
func (t *Grant) Wants() resp.Acks     { return resp.Acks(t.Acks) }
func (t *Grant) Kind() kind.Renewal   { return kind.Kind(t.Grant.Kind).Renewal() }

func (t *Grant) Renewal(now clock.Instant) (call script.Renewal, ok bool) {
	sh := ShardOf(t.Entry)
	var rd lock.Ready
	sh.Lock()
	lease, ok := t.Grant.Renewal(now, &rd)
	if ok {
		call = script.Renewal{Key: t.Entry.Name, Owner: OwnerOf(t.Entry, t.Grant.Kind, t.ID), Lease: lease}
	}
	sh.finish(&rd)
	return call, ok
}

func (t *Grant) Renewed(sent, now clock.Instant, lease time.Duration, acked int) {
	sh := ShardOf(t.Entry)
	var rd lock.Ready
	sh.Lock()
	if t.Grant.Renewed(sent, now, lease, acked, &rd) {
		t.Each(func(h *lock.Hold) { observerOf(h).Confirmed() })
	}
	sh.finish(&rd)
}

func (t *Grant) Gone(code int64) {
	why := lock.RemovedOnServer
	if code == script.WrongType {
		why = lock.KeyOverwritten
	}
	ShardOf(t.Entry).do(func(rd *lock.Ready) { t.Grant.Gone(why, rd) })
}
