package web

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/lockjson"
)

const (
	// maxWaiters and maxHolders are how many of a lock are shown.
	maxWaiters = 200
	maxHolders = 200
	maxRaw     = 1024 // bytes of the id of an owner; Pawl's and Redisson's have 60
	maxView    = 1000 // bytes of any other text
	// inspectTimeout is for one view of a lock, maxInspections how many are made at a time: each asks all engines.
	inspectTimeout = 5 * time.Second
	maxInspections = 4
)

// lockJSON is the view of one lock. Its texts are escaped, for people; Raw of a holder is not.
type lockJSON struct {
	lockjson.Lock
	ID          string  `json:"id"`
	At          int64   `json:"at"` // Unix time in ms
	HolderCount int     `json:"holder_count"`
	Events      []event `json:"events"`
	Error       string  `json:"error,omitempty"`
}

// engineJSON is an engine, and for how many of the locks that are listed it holds or waits.
type engineJSON struct {
	*lockjson.Engine
	Held    int `json:"held"`
	Waiting int `json:"waiting"`
}

// named finds the lock that a request is about: by the id of a row, or by a name that somebody typed.
func (s *Server) named(id, name string) (string, bool) {
	if id == "" {
		return name, name != ""
	}
	if r := s.board.row(id); r != nil {
		return r.name, true
	}
	name, _ = s.history.of(id)
	return name, name != ""
}

// lock answers with the view of one lock.
func (s *Server) lock(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	name, ok := s.named(q.Get("id"), q.Get("name"))
	if !ok {
		http.Error(w, "no such lock was seen lately", http.StatusNotFound)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), inspectTimeout)
	defer cancel()
	select {
	case s.inspections <- struct{}{}:
		defer func() { <-s.inspections }()
	case <-ctx.Done():
		http.Error(w, "too many views of locks are open", http.StatusServiceUnavailable)
		return
	}
	j := lockJSON{ID: idOf(name), Events: []event{}}
	if info, err := s.cfg.Locks.Inspect(ctx, name); err != nil {
		j.Error = shown(err.Error(), maxView)
	} else {
		j.fill(info)
	}
	j.Name = shown(name, maxWhole)
	if _, events := s.history.of(j.ID); events != nil {
		j.Events = events
	}
	j.At = time.Now().UnixMilli()
	answer(w, j)
}

func (j *lockJSON) fill(i *engine.LockInfo) {
	few := *i
	few.Holders, few.Waiters, few.Unconfirmed = i.Holders[:min(len(i.Holders), maxHolders)], i.Waiters[:min(len(i.Waiters), maxWaiters)], i.Unconfirmed[:min(len(i.Unconfirmed), maxWaiters)]
	j.Lock, j.HolderCount = lockjson.Of(&few, viewed), len(i.Holders)
	j.NameBytes = nil
	for k, h := range few.Holders {
		if j.Holders[k].Bytes = nil; len(h.ID) <= maxRaw {
			j.Holders[k].Raw = h.ID
		}
	}
}

// viewed is a text of somebody else, in the view of a lock.
func viewed(s string) string { return shown(s, maxView) }

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_ = json.NewEncoder(w).Encode(v)
}
