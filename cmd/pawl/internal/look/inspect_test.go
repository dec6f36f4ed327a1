package look

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/pawl-lock/pawl/engine"
)

// hostile is what somebody may have for a name, a host or a label.
const hostile = "\x1b[2J<script>\u009b2J\n\r\x00\xff"

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
	text := textOf(info, time.Now()) + cycleText(engine.Cycle{Waits: []engine.Use{use, use}}, time.Now())
	r := rowOf(info, time.Now())
	text += r.name + r.holder
	for _, c := range text {
		if c != '\n' && (c < ' ' || c == utf8.RuneError || c >= 0x7f && c <= 0x9f) {
			t.Fatalf("%q has %q", text, c)
		}
	}
	if n := strings.Count(text, "\n"); n > 20 {
		t.Errorf("%d lines:\n%s", n, text)
	}
	var b strings.Builder
	if err := printJSON(&b, jsonOf(info)); err != nil || !utf8.ValidString(b.String()) || !strings.Contains(b.String(), `"name_base64"`) || strings.Contains(b.String(), "\u009b") {
		t.Errorf("%s, %v", b.String(), err)
	}
}

// Somebody answers in the name of the engine that holds the lock: both are shown.
func TestTextOf_Contested_ShowsBoth(t *testing.T) {
	t.Parallel()
	one, other := &engine.EngineInfo{ID: "a", Answered: true, Contested: true, Service: "one"}, &engine.EngineInfo{ID: "a", Answered: true, Contested: true, Service: "other"}
	info := &engine.LockInfo{
		Name: "x", Kind: "mutex", Locked: true, Engines: []*engine.EngineInfo{one, other},
		Holders: []engine.HolderInfo{{Holder: engine.Holder{ID: "a:1", Count: 1}, Engine: one, Uses: []engine.Use{{Engine: one, Kind: "mutex"}, {Engine: other, Kind: "spin"}}}},
	}
	text := textOf(info, time.Now())
	for _, want := range []string{`"one"`, `"other"`, `"mutex"`, `"spin"`} {
		if strings.Count(text, want) != 1 {
			t.Errorf("lacks %s:\n%s", want, text)
		}
	}
	if strings.Count(text, "contested") != 2 || !strings.Contains(rowOf(info, time.Now()).holder, "contested") {
		t.Errorf("%s, %+v", text, rowOf(info, time.Now()))
	}
}

func TestCycleText_Possible_IsCalledSo(t *testing.T) {
	t.Parallel()
	c := engine.Cycle{Waits: []engine.Use{{Name: "x"}, {Name: "y"}}}
	if text := cycleText(c, time.Now()); !strings.HasPrefix(text, "deadlock of 2:") {
		t.Error(text)
	}
	c.Possible = true
	if text := cycleText(c, time.Now()); !strings.HasPrefix(text, "possible deadlock of 2:") {
		t.Error(text)
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
