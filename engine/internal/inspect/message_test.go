package inspect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestQuestion_Encoded_IsRead(t *testing.T) {
	t.Parallel()
	q := &Question{ID: "1", Reply: replyPrefix + "1", DB: 2, About: AboutName, Text: []byte("a\xff\x00b"), Millis: 200}
	got, err := parseQuestion(q.Encode())
	if err != nil || !reflect.DeepEqual(got, q) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestParseQuestion_Hostile_IsRefused(t *testing.T) {
	t.Parallel()
	good := Question{ID: "1", Reply: replyPrefix + "1", About: AboutName, Millis: 200}
	for what, change := range map[string]func(*Question){
		"the channel of a lock": func(q *Question) { q.Reply = "redisson_lock__channel:{orders}" },
		"that of a lock's name": func(q *Question) { q.Reply = replyPrefix + "{orders}" },
		"the questions":         func(q *Question) { q.Reply = Channel },
		"a long channel":        func(q *Question) { q.Reply = replyPrefix + strings.Repeat("x", maxChannel) },
		"a long id":             func(q *Question) { q.ID = strings.Repeat("x", maxEngineID+1) },
		"about nothing":         func(q *Question) { q.About = "unlock" },
		"no time":               func(q *Question) { q.Millis = 0 },
		"a long name":           func(q *Question) { q.Text = bytes.Repeat([]byte("x"), maxQuestion) },
	} {
		q := good
		change(&q)
		if got, err := parseQuestion(q.Encode()); err == nil {
			t.Errorf("%s: %+v", what, got)
		}
	}
	for _, text := range []string{"", "0", "{", "[]", `{"v":2,"id":"1","to":"` + replyPrefix + `1","about":"name","ms":1}`} {
		if got, err := parseQuestion([]byte(text)); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

// many is an answer with so many names of so many uses each.
func many(names, uses, length int) *Answer {
	a := &Answer{Engine: "e"}
	for i := range names {
		n := Name{Name: fmt.Appendf(nil, "%0*d", length, i), Waiting: 1}
		for range uses {
			n.Uses = append(n.Uses, Use{Held: true, Kind: "mutex", Millis: int64(i), Site: strings.Repeat("s", 2*maxText)})
		}
		a.Add(n)
	}
	return a
}

func TestAnswer_Encoded_IsBounded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ names, uses, length int }{{1, 1, 1}, {1, 5000, 1}, {5000, 1, 10}, {100, 100, 10}, {200, 1, 60_000}, {5, 1, 64 << 10}} {
		b := many(c.names, c.uses, c.length).Encode()
		got, err := parseAnswer(b)
		if err != nil || len(b) > maxAnswer {
			t.Fatalf("%v: %d bytes, %v", c, len(b), err)
		}
		uses := 0
		for _, n := range got.Names {
			uses += len(n.Uses)
			for _, u := range n.Uses {
				if len(u.Site) > maxText {
					t.Errorf("a site of %d bytes", len(u.Site))
				}
			}
		}
		if uses > maxUses || len(got.Names) == 0 {
			t.Errorf("%v: %d uses of %d names", c, uses, len(got.Names))
		}
		if all := c.names * c.uses; uses+got.More < all {
			t.Errorf("%v: %d uses, %d more, of %d", c, uses, got.More, all)
		}
	}
}

func TestAnswer_TooManyNames_KeepsTheLongest(t *testing.T) {
	t.Parallel()
	got, err := parseAnswer(many(3000, 1, 4).Encode())
	if err != nil || len(got.Names) != maxUses {
		t.Fatalf("%d names, %v", len(got.Names), err)
	}
	for _, n := range got.Names {
		if n.Uses[0].For() < (3000-maxUses)*time.Millisecond {
			t.Errorf("%s is among them", n.Name)
		}
	}
}

func TestAnswer_LongNames_HideNoOthers(t *testing.T) {
	t.Parallel()
	a := &Answer{Question: "q", Engine: "e"}
	for i := range 3 {
		a.Add(Name{Name: bytes.Repeat([]byte{'x'}, 64<<10), Waiting: 1, Uses: []Use{{Held: true, Kind: "mutex", Millis: int64(1000 - i)}}})
	}
	for i := range 50 {
		a.Add(Name{Name: fmt.Append(nil, i), Waiting: 1, Uses: []Use{{Held: true, Kind: "mutex", Millis: 1}}})
	}
	got, err := parseAnswer(a.Encode())
	if err != nil || len(got.Names) < 51 || got.More+len(got.Names) != 53 {
		t.Errorf("%d names, %d more, %v", len(got.Names), got.More, err)
	}
}

// It would take minutes to compare such a pattern with a name of 64 KiB.
func TestParseQuestion_LongPattern_IsRefused(t *testing.T) {
	t.Parallel()
	for length, want := range map[int]bool{maxPattern: true, maxPattern + 1: false} {
		q := &Question{ID: "1", Reply: replyPrefix + "1", About: AboutPattern, Text: bytes.Repeat([]byte{'*'}, length), Millis: 200}
		if _, err := parseQuestion(q.Encode()); (err == nil) != want {
			t.Errorf("%d bytes: %v", length, err)
		}
	}
}

func TestParseAnswer_Hostile_IsClamped(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 4096)
	b, err := json.Marshal(&Answer{
		Version: version, Engine: "e", Host: long, Service: long, PID: -1, Held: -1, Waiting: -1, More: -1,
		Labels: map[string]string{"a": strings.Repeat("x", MaxLabels)},
		Names: []Name{{Waiting: -5, Uses: []Use{{
			Kind: long, Owner: long, Site: long, Millis: -1, Size: -1, Renewals: -1, Depth: -1, Under: make([]Carried, 1000),
		}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	a, err := parseAnswer(b)
	if err != nil {
		t.Fatal(err)
	}
	wantBounded(t, a)
	if a.Host == "" || !strings.HasPrefix(long, a.Host) {
		t.Errorf("the host is %q", a.Host)
	}
	for _, text := range []string{"", "{}", "[]", `{"v":1}`, `{"v":3,"engine":"e"}`, `{"v":1,"engine":"` + strings.Repeat("x", maxEngineID+1) + `"}`} {
		if got, err := parseAnswer([]byte(text)); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

// What an answer is kept as has not much more bytes than its message.
func TestParseAnswer_ManyEmptyUses_KeepsFewBytes(t *testing.T) {
	for what, text := range map[string]string{
		"names": `{"v":1,"engine":"e","names":[` + strings.Repeat("{},", 170_000) + `{}]}`,
		"uses":  `{"v":1,"engine":"e","names":[{"uses":[` + strings.Repeat("{},", 170_000) + `{}]}]}`,
		"under": `{"v":1,"engine":"e","names":[{"uses":[{"under":[` + strings.Repeat("{},", 170_000) + `{}]}]}]}`,
	} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		a, err := parseAnswer([]byte(text))
		if err != nil {
			t.Fatal(what, err)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if kept := int64(after.HeapAlloc) - int64(before.HeapAlloc); kept > maxAnswer {
			t.Errorf("%s: %d bytes are kept", what, kept)
		}
		runtime.KeepAlive(a)
	}
}

// wantBounded checks an answer that anybody may have sent.
func wantBounded(t *testing.T, a *Answer) {
	t.Helper()
	uses, names := 0, 0
	if len(a.Host) > maxText || len(a.Service) > maxText || a.PID < 0 || a.Held < 0 || a.Waiting < 0 || a.More < 0 || size(a.Labels) > MaxLabels {
		t.Errorf("%+v", a)
	}
	for _, n := range a.Names {
		uses, names = uses+len(n.Uses), names+1
		if n.Waiting < 0 || n.Waiting > maxWaiting {
			t.Errorf("%d wait", n.Waiting)
		}
		for _, u := range n.Uses {
			if len(u.Kind) > maxText || len(u.Owner) > maxOwner || len(u.Site) > maxText || u.For() < 0 || u.Size < 0 || u.Renewals < 0 || u.Depth < 0 || len(u.Under) > maxUnder {
				t.Errorf("%+v", u)
			}
		}
	}
	if uses > maxUses || names > maxUses {
		t.Errorf("%d uses of %d names", uses, names)
	}
}

func FuzzParseAnswer(f *testing.F) {
	f.Add(many(3, 2, 5).Encode())
	f.Add([]byte(`{"v":1,"engine":"e","names":[{"waiting":9223372036854775807},{"name":"YQ==","waiting":-1,"uses":[{"ms":9223372036854775807}]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := parseAnswer(b)
		if err != nil {
			return
		}
		wantBounded(t, a)
		again, err := parseAnswer(a.Encode())
		if err != nil {
			t.Fatalf("what was read cannot be sent: %v", err)
		}
		wantBounded(t, again)
	})
}

func FuzzParseQuestion(f *testing.F) {
	f.Add((&Question{ID: "1", Reply: replyPrefix + "1", About: AboutPattern, Text: []byte("a*"), Millis: 200}).Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if q, err := parseQuestion(b); err == nil && (!strings.HasPrefix(q.Reply, replyPrefix) || len(q.Reply) > maxChannel || q.Millis <= 0) {
			t.Errorf("%+v", q)
		}
	})
}
