package pasted

import "testing"

func TestText_WhatSurroundsItByAccident_IsCut(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		"redis://h", " redis://h", "redis://h\n", "redis://h\r\n", "\ufeffredis://h\r", `"redis://h"`, `'redis://h'` + "\n", "\" redis://h \"",
	} {
		if got := Text(s); got != "redis://h" {
			t.Errorf("%q: %q", s, got)
		}
	}
	for _, s := range []string{"", `"`, `"redis://h`, `redis://h'`} {
		if got := Text(s); got != s {
			t.Errorf("%q: %q", s, got)
		}
	}
}

func TestSecret_OnlyTheEndOfALineIsCut(t *testing.T) {
	t.Parallel()
	for s, want := range map[string][2]string{
		"secret":     {"secret", ""},
		"secret\r\n": {"secret", ""},
		" secret\n":  {" secret", "a blank or a line break at its beginning or end"},
		`"secret"`:   {`"secret"`, "quotes around it"},
		"":           {"", ""},
	} {
		if got := Secret(s); got != want[0] || Doubtful(got) != want[1] {
			t.Errorf("%q: %q, %q", s, got, Doubtful(got))
		}
	}
}
