package web

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/pawl-lock/pawl/engine"
)

const (
	// maxWaiters and maxHolders are how many of a lock are shown.
	maxWaiters = 200
	maxHolders = 200
	maxRaw     = 1024 // bytes of the id of an owner; Pawl's and Redisson's have 60
	// inspectTimeout is for one view of a lock, maxInspections how many are made at a time: each asks all engines.
	inspectTimeout = 5 * time.Second
	maxInspections = 4
)

// lockJSON is the view of one lock.
type lockJSON struct {
	ID          string      `json:"id"`
	Name        string      `json:"name"`
	Kind        string      `json:"kind"`
	Mode        string      `json:"mode,omitempty"`
	Locked      bool        `json:"locked"`
	At          int64       `json:"at"`
	Lease       int64       `json:"lease_ms"` // what is left; negative: it never ends
	Holders     []ownerJSON `json:"holders"`
	HolderCount int         `json:"holder_count"`
	Waiting     int         `json:"waiting"`
	Waiters     []useJSON   `json:"waiters"`
	Unconfirmed []useJSON   `json:"unconfirmed,omitempty"`
	Queue       int         `json:"queue,omitempty"`
	Token       int64       `json:"token,omitempty"`
	Available   int         `json:"available"`
	Count       int         `json:"count"`
	Silent      int         `json:"silent,omitempty"`
	NotAsked    string      `json:"not_asked,omitempty"`
	Hidden      string      `json:"hidden,omitempty"`
	Events      []event     `json:"events"`
	Error       string      `json:"error,omitempty"`
}

type ownerJSON struct {
	ID     string      `json:"id"`
	Raw    string      `json:"raw"` // as the server has it, for unlock
	Count  int         `json:"count"`
	Lease  *int64      `json:"lease_ms,omitempty"` // of a permit
	Engine *engineJSON `json:"engine,omitempty"`
	Uses   []useJSON   `json:"uses"`
}

// engineJSON is an engine, and what it has of the locks that are listed.
type engineJSON struct {
	ID       string            `json:"id"`
	Answered bool              `json:"answered"`
	Host     string            `json:"host,omitempty"`
	PID      int               `json:"pid,omitempty"`
	Service  string            `json:"service,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	Addr     string            `json:"addr,omitempty"`
	Held     int               `json:"held"`
	Waiting  int               `json:"waiting"`
}

type useJSON struct {
	Engine   *engineJSON `json:"engine,omitempty"`
	Kind     string      `json:"kind"`
	Since    int64       `json:"since"`
	Renewals int         `json:"renewals,omitempty"`
	Depth    int         `json:"depth,omitempty"`
	Site     string      `json:"site,omitempty"`
	Under    []string    `json:"under,omitempty"`
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
	j := lockJSON{ID: idOf(name), Name: shown(name, maxWhole), Holders: []ownerJSON{}, Waiters: []useJSON{}, Events: []event{}}
	if info, err := s.cfg.Locks.Inspect(ctx, name); err != nil {
		j.Error = shown(err.Error(), 1000)
	} else {
		j.fill(info)
	}
	if _, events := s.history.of(j.ID); events != nil {
		j.Events = events
	}
	j.At = time.Now().UnixMilli()
	answer(w, j)
}

func (j *lockJSON) fill(i *engine.LockInfo) {
	j.Kind, j.Mode, j.Locked, j.Lease = i.Kind, shown(i.Mode, maxClaim), i.Locked, i.TTL.Milliseconds()
	j.HolderCount, j.Waiting, j.Queue, j.Token = len(i.Holders), i.Waiting, i.Queue, i.Token
	j.Available, j.Count, j.Silent = i.Available, i.Count, i.Silent
	for _, h := range i.Holders[:min(len(i.Holders), maxHolders)] {
		o := ownerJSON{ID: shown(h.ID, maxClaim), Count: h.Count, Uses: usesOf(h.Uses)}
		if len(h.ID) <= maxRaw {
			o.Raw = h.ID
		}
		if h.Engine != nil {
			o.Engine = engineOf(h.Engine)
		}
		if ms := h.TTL.Milliseconds(); i.Kind == "permits" {
			o.Lease = &ms
		}
		j.Holders = append(j.Holders, o)
	}
	j.Waiters, j.Unconfirmed = usesOf(i.Waiters), usesOf(i.Unconfirmed)
	if i.NotAsked != nil {
		j.NotAsked = shown(i.NotAsked.Error(), 1000)
	}
	if i.Hidden != nil {
		j.Hidden = shown(i.Hidden.Error(), 1000)
	}
}

func usesOf(all []engine.Use) []useJSON {
	list := []useJSON{}
	for _, u := range all[:min(len(all), maxWaiters)] {
		j := useJSON{Engine: engineOf(u.Engine), Kind: shown(u.Kind, maxClaim), Since: u.Since.UnixMilli(), Renewals: u.Renewals, Depth: u.Depth, Site: shown(u.Site, 2*maxClaim)}
		for _, name := range u.Under {
			j.Under = append(j.Under, shown(name, maxClaim))
		}
		list = append(list, j)
	}
	return list
}

func engineOf(e *engine.EngineInfo) *engineJSON {
	j := &engineJSON{ID: shown(e.ID, maxClaim), Answered: e.Answered, Host: shown(e.Host, maxClaim), PID: e.PID, Service: shown(e.Service, maxClaim), Addr: e.Addr}
	for k, v := range e.Labels {
		if j.Labels == nil {
			j.Labels = make(map[string]string)
		}
		j.Labels[shown(k, maxClaim)] = shown(v, maxClaim)
	}
	return j
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_ = json.NewEncoder(w).Encode(v)
}
