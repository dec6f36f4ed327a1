package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/pawl-lock/pawl/internal/redistest"
)

// A name or an id may be any bytes: what is printed can be told apart, and no terminal obeys it.
func TestStatus_NamesThatAreNoText_AreDistinct(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	names := []string{"\xff", "\xfe", "plain", "größe", "evil\x1b[31m\nx"}
	s.Do("HSET", "\xff", "\xfd:1", "1")
	v := pawl(t, nil, append([]string{"status", "--addr", s.URL(), "--format", "jsonl"}, names...)...)
	v.expect(t, 0)
	lines := strings.Split(strings.TrimSuffix(v.stdout.String(), "\n"), "\n")
	if len(lines) != len(names) {
		t.Fatalf("%d lines: %q", len(lines), lines)
	}
	for i, line := range lines {
		var o struct {
			Name    string `json:"name"`
			Bytes   []byte `json:"name_base64"`
			Holders []struct {
				Bytes []byte `json:"id_base64"`
			}
		}
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			t.Fatal(err)
		}
		name := o.Name
		if o.Bytes != nil {
			name = string(o.Bytes)
		}
		if name != names[i] || (i > 1) != (o.Bytes == nil) {
			t.Errorf("%q: %s", names[i], line)
		}
		if i == 0 && string(o.Holders[0].Bytes) != "\xfd:1" {
			t.Errorf("the holder: %s", line)
		}
	}
	one := pawl(t, nil, "status", "--addr", s.URL(), "--format", "jsonl", "plain")
	if one.expect(t, 0); one.stdout.String() != lines[2]+"\n" {
		t.Errorf("one name: %s, among several %s", one.stdout.String(), lines[2])
	}
	hold(t, s.URL(), names[4])
	for _, args := range [][]string{{"status", names[4]}, {"exec", names[4], "--wait", "0", "--", "true"}, {"unlock", "--force", names[4]}, {"unlock", "--force", names[4]}} {
		v := pawl(t, nil, append([]string{args[0], "--addr", s.URL()}, args[1:]...)...)
		if all := v.stdout.String() + v.stderr.String(); strings.ContainsRune(all, '\x1b') || strings.Count(all, "\n") > 2 || !strings.Contains(all, `evil\x1b[31m\nx`) {
			t.Errorf("%q: %q", args[0], all)
		}
	}
}
