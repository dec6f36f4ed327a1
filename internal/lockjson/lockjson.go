// Package lockjson is what programs and the page of "pawl web" get of a lock, in JSON.
package lockjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/pawl-lock/pawl/engine"
)

// Lock is a lock.
type Lock struct {
	Name        string   `json:"name"`
	NameBytes   []byte   `json:"name_base64,omitempty"` // of a name that is not UTF-8, of which Name has only a part
	Kind        string   `json:"kind"`
	Locked      *bool    `json:"locked"` // null: not known
	Mode        string   `json:"mode"`
	TTL         *int64   `json:"ttl_ms"` // null: no expiry, or not known
	Holders     []Holder `json:"holders"`
	Queue       int      `json:"queue,omitempty"`
	Token       int64    `json:"token,omitempty"`
	Available   *int     `json:"available,omitempty"`
	Taken       *int     `json:"taken,omitempty"`
	Count       *int     `json:"count,omitempty"`
	Hidden      string   `json:"hidden,omitempty"`  // why the user may not see whether there is more
	Waiting     *int     `json:"waiting,omitempty"` // nil: nobody was asked
	Waiters     []Use    `json:"waiters,omitempty"`
	Unconfirmed []Use    `json:"unconfirmed,omitempty"`
	Silent      int      `json:"silent,omitempty"`
	NotAsked    string   `json:"not_asked,omitempty"`
}

// Holder is an owner, or a permit.
type Holder struct {
	ID     string  `json:"id"`
	Bytes  []byte  `json:"id_base64,omitempty"` // as NameBytes
	Raw    string  `json:"raw,omitempty"`       // for the page, whose ID is escaped: what its unlock says
	Count  int     `json:"count"`
	TTL    *int64  `json:"ttl_ms,omitempty"` // of a permit; the holders of a lock share one
	Engine *Engine `json:"engine,omitempty"`
	Uses   []Use   `json:"uses,omitempty"`
}

// Engine is an engine.
type Engine struct {
	ID        string            `json:"id"`
	Answered  bool              `json:"answered"`
	Contested bool              `json:"contested,omitempty"` // another answer came in its name
	Host      string            `json:"host,omitempty"`
	PID       int               `json:"pid,omitempty"`
	Service   string            `json:"service,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Addr      string            `json:"addr,omitempty"`   // of one that did not answer; "": not connected, or hidden
	Hidden    string            `json:"hidden,omitempty"` // why the server does not show its connections
}

// Use is a hold, or a wait.
type Use struct {
	Engine   *Engine   `json:"engine,omitempty"`
	Name     string    `json:"name,omitempty"` // of a wait in a deadlock
	Kind     string    `json:"kind"`
	Since    time.Time `json:"since"`
	Renewals int       `json:"renewals,omitempty"`
	Depth    int       `json:"depth,omitempty"`
	Site     string    `json:"site,omitempty"`
	Under    []string  `json:"under,omitempty"`
}

// Cycle is a deadlock.
type Cycle struct {
	Possible bool  `json:"possible,omitempty"`
	Waits    []Use `json:"waits"` // each is for a lock that the next one's caller holds
}

// Text changes the texts of others.
type Text func(string) string

// Plain leaves texts as they are. JSON escapes them.
func Plain(s string) string { return s }

// Of is a lock in JSON.
func Of(i *engine.LockInfo, text Text) Lock {
	j := Lock{
		Name: text(i.Name), NameBytes: NotText(i.Name), Kind: i.Kind, Locked: &i.Locked, Mode: text(i.Mode), TTL: millis(i.TTL), Holders: []Holder{},
		Queue: i.Queue, Token: i.Token, Waiting: &i.Waiting, Waiters: Uses(i.Waiters, text), Unconfirmed: Uses(i.Unconfirmed, text), Silent: i.Silent,
		Hidden: errorText(i.Hidden, text), NotAsked: errorText(i.NotAsked, text),
	}
	for _, h := range i.Holders {
		o := Holder{ID: text(h.ID), Bytes: NotText(h.ID), Count: h.Count, Engine: EngineOf(h.Engine, text), Uses: Uses(h.Uses, text)}
		for k := range h.Uses {
			if h.Uses[k].Engine == h.Engine {
				o.Uses[k].Engine = nil // once is enough
			}
		}
		if i.Kind == "permits" {
			o.TTL = millis(h.TTL)
		}
		j.Holders = append(j.Holders, o)
	}
	switch taken := len(i.Holders); i.Kind {
	case "permits":
		locked := taken > 0
		j.TTL, j.Available, j.Taken, j.Locked = nil, &i.Available, &taken, &locked
	case "count":
		j.TTL, j.Count, j.Locked = nil, &i.Count, nil
	}
	return j
}

// EngineOf is an engine in JSON, null if there is none.
func EngineOf(e *engine.EngineInfo, text Text) *Engine {
	if e == nil {
		return nil
	}
	j := &Engine{
		ID: text(e.ID), Answered: e.Answered, Contested: e.Contested, Host: text(e.Host), PID: e.PID, Service: text(e.Service), Addr: text(e.Addr), Hidden: errorText(e.Hidden, text),
	}
	for k, v := range e.Labels {
		if j.Labels == nil {
			j.Labels = make(map[string]string)
		}
		j.Labels[text(k)] = text(v)
	}
	return j
}

// Uses are uses in JSON.
func Uses(all []engine.Use, text Text) (list []Use) {
	for _, u := range all {
		one := Use{Engine: EngineOf(u.Engine, text), Name: text(u.Name), Kind: text(u.Kind), Since: u.Since.UTC(), Renewals: u.Renewals, Depth: u.Depth, Site: text(u.Site)}
		for _, name := range u.Under {
			one.Under = append(one.Under, text(name))
		}
		list = append(list, one)
	}
	return list
}

// NotText is what JSON cannot hold: a text that is not UTF-8. Others are nil.
func NotText(s string) []byte {
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

func errorText(err error, text Text) string {
	if err == nil {
		return ""
	}
	return text(err.Error())
}

// Line is a value on a line of its own. It can be printed on a terminal, whatever is in it: a terminal obeys U+007F and the
// control characters up to U+009F as it obeys those that JSON escapes.
func Line(v any) ([]byte, error) { return encode(v, "") }

// Document is the same with an indent.
func Document(v any) ([]byte, error) { return encode(v, "  ") }

func encode(v any, indent string) ([]byte, error) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetIndent("", indent)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	var out []byte
	for rest := text.Bytes(); len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		if r >= 0x7f && r <= 0x9f {
			out = fmt.Appendf(out, `\u%04x`, r)
		} else {
			out = append(out, rest[:size]...)
		}
		rest = rest[size:]
	}
	return out, nil
}
