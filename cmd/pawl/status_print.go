package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/execlock"
	"github.com/pawl-lock/pawl/internal/lockjson"
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

// jsonOf is what programs get. Nobody was asked who waits.
func jsonOf(s *engine.LockInfo) lockjson.Lock {
	j := lockjson.Of(s, lockjson.Plain)
	j.Waiting, j.NotAsked = nil, ""
	return j
}

// printJSON prints one object for one name, an array for several.
func printJSON(w io.Writer, seen []*engine.LockInfo) error {
	var list []lockjson.Lock
	for _, s := range seen {
		list = append(list, jsonOf(s))
	}
	var v any = list
	if len(list) == 1 {
		v = list[0]
	}
	text, err := lockjson.Document(v)
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}

// printJSONLines prints one object a line, for any number of names.
func printJSONLines(w io.Writer, seen []*engine.LockInfo) error {
	var text bytes.Buffer
	for _, s := range seen {
		line, err := lockjson.Line(jsonOf(s))
		if err != nil {
			return err
		}
		text.Write(line)
	}
	_, err := w.Write(text.Bytes())
	return err
}
