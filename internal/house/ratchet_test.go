package house

import (
	"maps"
	"testing"
)

func TestRecorded_RowsAboveTheirLimit_MustNotGrow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		recorded Recorded
		value    int
		fails    bool
		lowered  Recorded
	}{
		{"at the limit", nil, 10, false, Recorded{}},
		{"above it", nil, 11, true, Recorded{}}, // nothing is recorded unasked
		{"as recorded", Recorded{"a": 20}, 20, false, Recorded{"a": 20}},
		{"less", Recorded{"a": 20}, 15, false, Recorded{"a": 15}},
		{"more", Recorded{"a": 20}, 21, true, Recorded{"a": 20}},
		{"down to the limit", Recorded{"a": 20}, 10, false, Recorded{}},
		{"recorded below the limit", Recorded{"a": 5}, 10, false, Recorded{}},
		{"another's", Recorded{"b": 20}, 11, true, Recorded{}},
	} {
		rows := []Row{{Key: "a", Value: c.value, Limit: 10}, {Key: "free", Value: 1000}}
		if got := c.recorded.Grown(rows); (len(got) > 0) != c.fails {
			t.Errorf("%s: grown %v", c.name, got)
		}
		if got := c.recorded.Lowered(rows); !maps.Equal(got, c.lowered) {
			t.Errorf("%s: lowered to %v, want %v", c.name, got, c.lowered)
		}
	}
}

func TestParseRecorded_WhatFormatWrites_IsTheSame(t *testing.T) {
	t.Parallel()
	rows := []Row{{Key: "b"}, {Key: "a"}, {Key: "c"}}
	want := Recorded{"a": 1, "b": 20}
	text := want.Format(rows)
	if got, err := ParseRecorded(text); err != nil || !maps.Equal(got, want) {
		t.Errorf("%q is %v, %v, want %v", text, got, err, want)
	}
}

func TestParseRecorded_NoValue_Fails(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"a", "a b", "a 1 2", "a 1\na 2"} {
		if got, err := ParseRecorded(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}
