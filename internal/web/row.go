package web

import (
	"encoding/json"
	"time"

	"github.com/pawl-lock/pawl/engine"
)

// jitter is by how much an instant that is computed anew at each look may move without having changed.
const jitter = time.Second

// row is a lock as the table shows it. It is never changed: a look makes a new one if anything differs.
type row struct {
	id, name string
	json     []byte
	seen     uint64 // the last look that found it; the Source's own

	// What the next look compares.
	holders []string
	waiting int
	since   time.Time
	exactly bool
	lease   time.Time
}

// rowJSON is what the page gets. Most pages get 10,000 of them, so the keys are short.
type rowJSON struct {
	ID      string       `json:"i"`
	Name    string       `json:"n"`
	Kind    string       `json:"k"`
	Mode    string       `json:"m,omitempty"`
	Holders []holderJSON `json:"h"`           // maxRowHolders at most
	Count   int          `json:"c,omitempty"` // how many holders, if there are more
	Since   int64        `json:"s"`           // Unix time in ms
	AtLeast bool         `json:"a,omitempty"` // it is held for longer, nobody says for how long
	Lease   int64        `json:"l"`           // when it ends; 0: never
	Waiting int          `json:"w"`
}

// holderJSON is an owner, and who that is, if its engine answers.
type holderJSON struct {
	ID      string `json:"id"`
	Host    string `json:"host,omitempty"`
	PID     int    `json:"pid,omitempty"`
	Service string `json:"service,omitempty"`
}

const maxRowHolders = 3

// rowOf is the row of a lock. It is before itself if nothing has changed.
func rowOf(l *engine.LockInfo, before *row, now time.Time, gap bool) *row {
	r := &row{id: idOf(l.Name), name: l.Name, waiting: l.Waiting}
	for _, h := range l.Holders {
		r.holders = append(r.holders, h.ID)
	}
	r.setSince(l, before, now, gap)
	if l.TTL >= 0 {
		r.lease = now.Add(l.TTL)
		if before != nil && near(r.lease, before.lease) {
			r.lease = before.lease
		}
	}
	j := rowJSON{
		ID: r.id, Name: shown(l.Name, maxShown), Kind: l.Kind, Since: r.since.UnixMilli(), AtLeast: !r.exactly, Waiting: l.Waiting,
		Holders: []holderJSON{},
	}
	if l.Mode != "exclusive" {
		j.Mode = shown(l.Mode, maxClaim)
	}
	if !r.lease.IsZero() {
		j.Lease = r.lease.UnixMilli()
	}
	for i, h := range l.Holders {
		if i == maxRowHolders {
			j.Count = len(l.Holders)
			break
		}
		j.Holders = append(j.Holders, holderOf(h.ID, h.Engine))
	}
	r.json, _ = json.Marshal(j) // strings and numbers
	if before != nil && string(before.json) == string(r.json) {
		return before
	}
	return r
}

// setSince takes the oldest hold that an engine describes. Without one the look that saw the lock first is the
// best there is: it is late by a period at most, unless nobody had looked for a while.
func (r *row) setSince(l *engine.LockInfo, before *row, now time.Time, gap bool) {
	for _, h := range l.Holders {
		for _, u := range h.Uses {
			if !r.exactly || u.Since.Before(r.since) {
				r.since, r.exactly = u.Since, true
			}
		}
	}
	same := before != nil && shares(before.holders, r.holders)
	switch {
	case r.exactly && same && before.exactly && near(r.since, before.since):
		r.since = before.since
	case r.exactly:
	case same:
		r.since, r.exactly = before.since, before.exactly
	default:
		r.since, r.exactly = now, !gap
	}
}

func near(a, b time.Time) bool {
	d := a.Sub(b)
	return !a.IsZero() && !b.IsZero() && -jitter < d && d < jitter
}

// shares reports whether one of the holders is there still.
func shares(a, b []string) bool {
	for _, x := range a {
		for _, y := range b {
			if x == y {
				return true
			}
		}
	}
	return false
}

func holderOf(id string, e *engine.EngineInfo) holderJSON {
	h := holderJSON{ID: shown(id, maxClaim)}
	if e != nil && e.Answered && !e.Contested { // else the page of the lock has all that answered
		h.Host, h.PID, h.Service = shown(e.Host, maxClaim), e.PID, shown(e.Service, maxClaim)
	}
	return h
}
