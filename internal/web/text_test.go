package web_test

import (
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// hostile are names that somebody may have given to a lock, and what is shown of them.
var hostile = map[string]string{
	`<img src=x onerror=alert(1)></script>`: `<img src=x onerror=alert(1)></script>`,
	"a\x01b\x1b[31m\r\ndata: {}\n\n":        `a\x01b\x1b[31m\r\ndata: {}\n\n`,
	"\xff\xfe":                              `\xff\xfe`,
	"\xff\xfd":                              `\xff\xfd`, // not the same lock
	"right\u202eleft\u2028":                 `right\u202eleft\u2028`,
	`back\slash "quoted" 'name'`:            `back\\slash "quoted" 'name'`,
	strings.Repeat("é", 32<<10):             strings.Repeat("é", 100) + "…",
	"日本 🔒":                                  "日本 🔒",
}

func TestStream_HostileNames_AreShownAsText(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	e := open(t, s.URL())
	for name := range hostile {
		must[*engine.Hold](t)(e.Mutex(name).Lock(t.Context()))
	}
	p := serve(t, open(t, s.URL()))
	st := follow(t, p, "")
	st.until("all are there", func(rows map[string]row) bool { return len(rows) == len(hostile) })
	rows := st.named()
	for name, shown := range hostile {
		r, ok := rows[shown]
		if !ok {
			t.Errorf("%q is not shown as %q: %v", name, shown, rows)
			continue
		}
		v := inspect(t, p, "id="+r.ID)
		if !v.Locked || v.Error != "" || !utf8.ValidString(v.Name) || len(v.Name) < len(name) {
			t.Errorf("%q: %+v", name, v)
		}
		if v = inspect(t, p, "name="+url.QueryEscape(name)); !v.Locked || v.ID != r.ID {
			t.Errorf("by its name %q: %+v", name, v)
		}
	}
}

func TestStream_HostileHolder_IsShownAsText(t *testing.T) {
	t.Parallel()
	f := new(fake)
	f.hold("x", "<b>\x00"+strings.Repeat("y", 100_000))
	f.locks["x"].Holders[0].Engine = &engine.EngineInfo{
		ID: "e", Answered: true, Host: "<h>\xff", Service: strings.Repeat("s", 1000), PID: 7, Labels: map[string]string{"<k>": "\x1b"},
	}
	p := serve(t, f)
	st := follow(t, p, "")
	st.until("it is there", func(rows map[string]row) bool { return len(rows) == 1 })
	h := st.named()["x"].Holders[0]
	if !strings.HasPrefix(h.ID, `<b>\x00yy`) || len(h.ID) > 200 || h.Host != `<h>\xff` || len(h.Service) > 110 {
		t.Errorf("%+v", h)
	}
	if v := inspect(t, p, "name=x"); v.Holders[0].Raw != "" {
		t.Error("an id of 100 kB is sent")
	}
	if _, body, _ := get(t, p, "/api/lock?name=x"); strings.ContainsAny(body, "<>\x00\x1b") {
		t.Errorf("%q", body)
	}
}

// Two answers came in the name of the engine that holds a lock. The list believes neither, and the page of the lock has both.
func TestStream_ContestedHolder_IsShownByItsID(t *testing.T) {
	t.Parallel()
	f := new(fake)
	f.hold("x", "a:1")
	one, other := &engine.EngineInfo{ID: "a", Answered: true, Contested: true, Service: "one"}, &engine.EngineInfo{ID: "a", Answered: true, Contested: true, Service: "other"}
	h := &f.locks["x"].Holders[0]
	h.Engine, h.Uses = one, []engine.Use{{Engine: one, Kind: "mutex"}, {Engine: other, Kind: "mutex"}}
	p := serve(t, f)
	st := follow(t, p, "")
	st.until("it is there", func(rows map[string]row) bool { return len(rows) == 1 })
	if h := st.named()["x"].Holders[0]; h.ID != "a:1" || h.Service != "" {
		t.Errorf("%+v", h)
	}
	if _, body, _ := get(t, p, "/api/lock?name=x"); !strings.Contains(body, `"service":"one"`) || !strings.Contains(body, `"service":"other"`) || !strings.Contains(body, `"contested":true`) {
		t.Error(body)
	}
}
