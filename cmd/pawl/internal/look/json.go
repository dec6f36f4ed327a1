package look

import (
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/pawl-lock/pawl/engine"
)

// lockJSON is what scripts get of a lock.
type lockJSON struct {
	Name        string       `json:"name"`
	NameBytes   []byte       `json:"name_base64,omitempty"` // of a name that is not UTF-8
	Kind        string       `json:"kind"`
	Locked      bool         `json:"locked"`
	Mode        string       `json:"mode,omitempty"`
	TTL         *int64       `json:"ttl_ms"` // null: no expiry
	Holders     []holderJSON `json:"holders"`
	Queue       int          `json:"queue,omitempty"`
	Token       int64        `json:"token,omitempty"`
	Available   *int         `json:"available,omitempty"`
	Count       *int         `json:"count,omitempty"`
	Hidden      string       `json:"hidden,omitempty"`
	Waiting     int          `json:"waiting"`
	Waiters     []useJSON    `json:"waiters,omitempty"`
	Unconfirmed []useJSON    `json:"unconfirmed,omitempty"`
	Silent      int          `json:"silent,omitempty"`
	NotAsked    string       `json:"not_asked,omitempty"`
}

type holderJSON struct {
	ID     string      `json:"id"`
	Bytes  []byte      `json:"id_base64,omitempty"`
	Count  int         `json:"count"`
	TTL    *int64      `json:"ttl_ms,omitempty"` // of a permit
	Engine *engineJSON `json:"engine,omitempty"`
	Uses   []useJSON   `json:"uses,omitempty"`
}

type engineJSON struct {
	ID       string            `json:"id"`
	Answered bool              `json:"answered"`
	Host     string            `json:"host,omitempty"`
	PID      int               `json:"pid,omitempty"`
	Service  string            `json:"service,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	Addr     string            `json:"addr,omitempty"`   // of one that did not answer; "": not connected, or hidden
	Hidden   string            `json:"hidden,omitempty"` // why the server does not show its connections
}

type useJSON struct {
	Engine   *engineJSON `json:"engine,omitempty"`
	Name     string      `json:"name,omitempty"` // of a wait in a deadlock
	Kind     string      `json:"kind"`
	Since    time.Time   `json:"since"`
	Renewals int         `json:"renewals,omitempty"`
	Depth    int         `json:"depth,omitempty"`
	Site     string      `json:"site,omitempty"`
	Under    []string    `json:"under,omitempty"`
}

func jsonOf(i *engine.LockInfo) lockJSON {
	j := lockJSON{
		Name: i.Name, NameBytes: notText(i.Name), Kind: i.Kind, Locked: i.Locked, Mode: i.Mode, TTL: millis(i.TTL), Holders: []holderJSON{},
		Queue: i.Queue, Token: i.Token, Waiting: i.Waiting, Waiters: uses(i.Waiters, true), Unconfirmed: uses(i.Unconfirmed, true), Silent: i.Silent,
	}
	for _, h := range i.Holders {
		o := holderJSON{ID: h.ID, Bytes: notText(h.ID), Count: h.Count, Engine: engineOf(h.Engine), Uses: uses(h.Uses, false)}
		if i.Kind == "permits" {
			o.TTL = millis(h.TTL)
		}
		j.Holders = append(j.Holders, o)
	}
	switch i.Kind {
	case "permits":
		j.TTL, j.Available, j.Locked = nil, &i.Available, len(i.Holders) > 0
	case "count":
		j.TTL, j.Count = nil, &i.Count
	}
	if i.Hidden != nil {
		j.Hidden = i.Hidden.Error()
	}
	if i.NotAsked != nil {
		j.NotAsked = i.NotAsked.Error()
	}
	return j
}

func engineOf(e *engine.EngineInfo) *engineJSON {
	if e == nil {
		return nil
	}
	j := &engineJSON{ID: e.ID, Answered: e.Answered, Host: e.Host, PID: e.PID, Service: e.Service, Labels: e.Labels, Addr: e.Addr}
	if e.Hidden != nil {
		j.Hidden = e.Hidden.Error()
	}
	return j
}

func uses(all []engine.Use, whose bool) (list []useJSON) {
	for _, u := range all {
		one := useJSON{Name: u.Name, Kind: u.Kind, Since: u.Since.UTC(), Renewals: u.Renewals, Depth: u.Depth, Site: u.Site, Under: u.Under}
		if whose {
			one.Engine = engineOf(u.Engine)
		}
		list = append(list, one)
	}
	return list
}

// notText is what JSON cannot hold: a text that is not UTF-8. Others are nil.
func notText(s string) []byte {
	if utf8.ValidString(s) {
		return nil
	}
	return []byte(s)
}

// millis is null for what has no lease.
func millis(d time.Duration) *int64 {
	if d < 0 {
		return nil
	}
	ms := d.Milliseconds()
	return &ms
}

// sortedLabels are labels as key=value.
func sortedLabels(labels map[string]string) (all []string) {
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		all = append(all, k+"="+labels[k])
	}
	return all
}
