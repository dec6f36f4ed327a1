package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/execlock"
)

func printText(w io.Writer, seen []*engine.LockInfo) error {
	text := ""
	for _, s := range seen {
		text += textOf(s)
	}
	_, err := io.WriteString(w, text)
	return err
}

// textOf is a line for the name, and one for everything that belongs to it.
func textOf(s *engine.LockInfo) string {
	var text strings.Builder
	name := execlock.Shown(s.Name)
	line := func(format string, args ...any) { fmt.Fprintf(&text, format+"\n", args...) }
	switch {
	case s.Kind == "count":
		line("%s: a count of %d: permits of a semaphore that are to be had, or what a latch waits for", name, s.Count)
	case s.Kind == "permits":
		line("%s: a semaphore, permits to be had: %d, taken: %d", name, s.Available, len(s.Holders))
	case s.Locked:
		line("%s: locked (%s), %s", name, modeText(s), leaseText(s.TTL))
	default:
		line("%s: free", name)
		if strings.ContainsAny(s.Name, "*?[") {
			line("  (this is the lock of that very name; \"pawl ls\" takes patterns)")
		}
	}
	for _, h := range s.Holders {
		if s.Kind == "permits" {
			line("  permit %s, %s", h.ID, leaseText(h.TTL))
		} else {
			line("  holder %s, count %d", execlock.Shown(h.ID), h.Count)
		}
	}
	if s.Queue > 0 {
		line("  a fair lock, waiting in its queue: %d", s.Queue)
	}
	if s.Token != 0 {
		line("  the last fencing token is %d", s.Token)
	}
	if s.Hidden != nil {
		line("  there may be more than this user can see: %s", execlock.Shown(s.Hidden.Error()))
	}
	return text.String()
}

// modeText is how a lock is held.
func modeText(s *engine.LockInfo) string {
	readers := readersOf(s)
	switch {
	case s.Kind != "read-write" || readers == 0:
		return execlock.Shown(s.Mode)
	case s.Mode == "read":
		return fmt.Sprintf("read by %d", readers)
	}
	return fmt.Sprintf("write, and read by %d", readers) // by the writer
}

// readersOf counts the readers of a read-write lock. A negative number is nobody's.
func readersOf(s *engine.LockInfo) (n int) {
	for _, h := range s.Holders {
		if !strings.HasSuffix(h.ID, ":write") && !strings.Contains(h.ID, ":-") {
			n++
		}
	}
	return n
}

func leaseText(ttl time.Duration) string {
	if ttl < 0 {
		return "without a lease: it never ends by itself"
	}
	return fmt.Sprintf("its lease ends in %v unless renewed", ttl.Round(time.Millisecond))
}

// seenJSON is what scripts get.
type seenJSON struct {
	Name      string       `json:"name"`
	NameBytes []byte       `json:"name_base64,omitempty"` // of a name that is not UTF-8, of which Name has only a part
	Kind      string       `json:"kind"`
	Locked    *bool        `json:"locked"` // null: not known
	Mode      string       `json:"mode"`
	TTL       *int64       `json:"ttl_ms"` // null: no expiry, or not known
	Holders   []holderJSON `json:"holders"`
	Queue     *int         `json:"queue,omitempty"`
	Token     *int64       `json:"token,omitempty"`
	Available *int         `json:"available,omitempty"`
	Taken     *int         `json:"taken,omitempty"`
	Count     *int         `json:"count,omitempty"`
	Hidden    string       `json:"hidden,omitempty"` // why the user may not see whether there is more
}

type holderJSON struct {
	ID    string `json:"id"`
	Bytes []byte `json:"id_base64,omitempty"` // as Name
	Count int    `json:"count"`
	TTL   *int64 `json:"ttl_ms,omitempty"` // of a permit; the holders of a lock share one
}

func jsonOf(s *engine.LockInfo) seenJSON {
	held := held(s)
	j := seenJSON{Name: s.Name, NameBytes: notText(s.Name), Kind: s.Kind, Locked: &held, Mode: s.Mode, TTL: millis(s.TTL), Holders: []holderJSON{}}
	for _, h := range s.Holders {
		one := holderJSON{ID: h.ID, Bytes: notText(h.ID), Count: h.Count}
		if s.Kind == "permits" {
			one.TTL = millis(h.TTL)
		}
		j.Holders = append(j.Holders, one)
	}
	switch s.Kind {
	case "count":
		j.Locked, j.TTL, j.Count = nil, nil, &s.Count
	case "permits":
		taken := len(s.Holders)
		j.TTL, j.Available, j.Taken = nil, &s.Available, &taken
	}
	if s.Queue > 0 {
		j.Queue = &s.Queue
	}
	if s.Token != 0 {
		j.Token = &s.Token
	}
	if s.Hidden != nil {
		j.Hidden = s.Hidden.Error()
	}
	return j
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

// printJSON prints one object for one name, an array for several.
func printJSON(w io.Writer, seen []*engine.LockInfo) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	if len(seen) == 1 {
		return enc.Encode(jsonOf(seen[0]))
	}
	var list []seenJSON
	for _, s := range seen {
		list = append(list, jsonOf(s))
	}
	return enc.Encode(list)
}

// printJSONLines prints one object a line, for any number of names.
func printJSONLines(w io.Writer, seen []*engine.LockInfo) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	for _, s := range seen {
		if err := enc.Encode(jsonOf(s)); err != nil {
			return err
		}
	}
	_, err := w.Write(text.Bytes())
	return err
}
