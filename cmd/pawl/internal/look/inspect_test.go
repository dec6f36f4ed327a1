package look

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/pawl-lock/pawl/engine"
)

// hostile is what somebody may have for a name, a host or a label.
const hostile = "\x1b[2J<script>\n\r\x00\xff"

// A terminal does what escape sequences say, and a line that somebody else makes up looks like ours.
func TestTextOf_HostileTexts_AreQuoted(t *testing.T) {
	t.Parallel()
	of := &engine.EngineInfo{ID: hostile, Answered: true, Host: hostile, Service: hostile, Labels: map[string]string{hostile: hostile}}
	use := engine.Use{Engine: of, Kind: hostile, Site: hostile, Name: hostile, Under: []string{hostile}, Renewals: 1, Depth: 2}
	info := &engine.LockInfo{
		Name: hostile, Kind: "mutex", Locked: true, Mode: hostile, Waiting: 1, Waiters: []engine.Use{use}, Unconfirmed: []engine.Use{use}, Silent: 2,
		Holders: []engine.HolderInfo{{Holder: engine.Holder{ID: hostile, Count: 1}, Engine: of, Uses: []engine.Use{use}}},
		Engines: []*engine.EngineInfo{of},
	}
	text := textOf(info, time.Now()) + cycleText(engine.Cycle{use, use}, time.Now())
	r := rowOf(info, time.Now())
	text += r.name + r.holder
	for _, c := range text {
		if c != '\n' && (c < ' ' || c == utf8.RuneError || c == 0x7f) {
			t.Fatalf("%q has %q", text, c)
		}
	}
	if n := strings.Count(text, "\n"); n > 20 {
		t.Errorf("%d lines:\n%s", n, text)
	}
	b, err := json.Marshal(jsonOf(info))
	if err != nil || !utf8.Valid(b) || !strings.Contains(string(b), `"name_base64"`) {
		t.Errorf("%s, %v", b, err)
	}
}

func TestTextOf_WhatCannotBeKnown_IsSaid(t *testing.T) {
	t.Parallel()
	holder := func(e engine.EngineInfo) *engine.LockInfo {
		return &engine.LockInfo{Name: "x", Kind: "mutex", Locked: true, Mode: "exclusive", TTL: time.Second, Holders: []engine.HolderInfo{{Holder: engine.Holder{ID: "a:1", Count: 1}, Engine: &e}}}
	}
	for _, c := range []struct {
		info *engine.LockInfo
		want string
	}{
		{holder(engine.EngineInfo{Addr: "10.0.0.4:5000"}), `a client at "10.0.0.4:5000" that does not answer`},
		{holder(engine.EngineInfo{}), "no client of that id is connected"},
		{holder(engine.EngineInfo{Hidden: engine.ErrUnavailable}), "CLIENT LIST"},
		{&engine.LockInfo{Name: "x", NotAsked: engine.ErrUnavailable}, "no engine could be asked"},
		{&engine.LockInfo{Name: "x", Silent: 3}, "whether 3 more engines wait"},
		{&engine.LockInfo{Name: "x", Hidden: engine.ErrUnavailable}, "this user may not see"},
	} {
		if text := textOf(c.info, time.Now()); !strings.Contains(text, c.want) {
			t.Errorf("lacks %q:\n%s", c.want, text)
		}
	}
}
