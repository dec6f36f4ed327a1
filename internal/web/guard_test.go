package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/pawl-lock/pawl/internal/web"
)

func TestGuard_EveryAnswer_HasHeaders(t *testing.T) {
	t.Parallel()
	p := serve(t, new(fake))
	for _, path := range []string{"/", "/assets/app.js", "/assets/style.css", "/assets/uplot.js", "/api/lock?name=x", "/nothing", "/assets/index.html"} {
		_, _, h := get(t, p, path)
		policy := h.Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "img-src 'self' data:", "frame-ancestors 'none'", "base-uri 'none'"} {
			if !strings.Contains(policy, part) {
				t.Errorf("%s: %q lacks %q", path, policy, part)
			}
		}
		if strings.Contains(policy, "unsafe") || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("X-Frame-Options") != "DENY" || h.Get("Referrer-Policy") != "no-referrer" ||
			h.Get("Cross-Origin-Resource-Policy") != "same-origin" || h.Get("Access-Control-Allow-Origin") != "" || h.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %v", path, h)
		}
	}
	_, body, h := get(t, p, "/assets/app.js")
	if h.Get("Content-Type") != "text/javascript; charset=utf-8" || !strings.Contains(body, "EventSource") {
		t.Error(h)
	}
	// Everything comes from here, nothing is inline, and no text is ever read as HTML.
	_, page, _ := get(t, p, "/")
	if found := regexp.MustCompile(`https?://[^w]|<script>|<style|style=|\son\w+=`).FindString(page); found != "" {
		t.Errorf("the page has %q", found)
	}
	for _, file := range []string{"app.js", "lock.js", "table.js"} {
		_, text, _ := get(t, p, "/assets/"+file)
		if found := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|Function\(|https?://`).FindString(text); found != "" {
			t.Errorf("%s has %q", file, found)
		}
	}
}

func TestGuard_HostOfAnotherSite_IsRefused(t *testing.T) {
	t.Parallel()
	p := serve(t, new(fake), func(c *web.Config) { c.Hosts = []string{"locks.example", "fd00::7"} })
	for host, want := range map[string]int{
		"localhost": 200, "LOCALHOST:7390": 200, "127.0.0.1:1": 200, "[::1]:7390": 200, "[::1]": 200, "locks.example": 200, "Locks.Example:80": 200, "[fd00::7]:1": 200,
		"evil.example": 421, "evil.example:7390": 421, "localhost.evil.example": 421, "127.0.0.1.evil.example": 421, "locks.example.": 421, "10.0.0.1": 421,
	} {
		for _, path := range []string{"/", "/assets/app.js", "/api/lock?name=x"} {
			if code, body, _ := get(t, p, path, "Host: "+host); code != want {
				t.Errorf("%s%s: %d, want %d", host, path, code, want)
			} else if code == 421 && !strings.Contains(body, "--host") {
				t.Errorf("%s: %s", host, body)
			}
		}
	}
	for _, site := range []string{"cross-site", "same-site"} {
		if code, _, _ := get(t, p, "/api/lock?name=x", "Sec-Fetch-Site: "+site); code != 403 {
			t.Errorf("%s: %d", site, code)
		}
	}
}

func TestLoopback_Addresses_AreRecognised(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]bool{
		"127.0.0.1:7390": true, "127.8.0.1:1": true, "[::1]:7390": true, "localhost:80": true, "[::ffff:127.0.0.1]:1": true,
		"0.0.0.0:7390": false, ":7390": false, "[::]:7390": false, "10.0.0.1:1": false, "locks.example:80": false, "localhost.example:80": false,
	} {
		if web.Loopback(addr) != want {
			t.Errorf("%s: want %v", addr, want)
		}
	}
}

var tokenInPage = regexp.MustCompile(`name="pawl-token" content="(\w*)"`)

func TestUnlock_OnlyWithFlagTokenAndMethod(t *testing.T) {
	t.Parallel()
	f := new(fake)
	f.hold("x", "a:1")
	var mu sync.Mutex
	var unlocked []string
	var logged strings.Builder
	p := serve(t, f, func(c *web.Config) {
		c.Unlock = func(_ context.Context, name, holder string) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			unlocked = append(unlocked, fmt.Sprint(name, " of ", holder))
			f.set(func() { delete(f.locks, name) })
			return 1, nil
		}
		c.Log = slog.New(slog.NewTextHandler(&logged, nil))
	})
	st := follow(t, p, "")
	st.until("it is there", func(rows map[string]row) bool { return len(rows) == 1 })
	id := st.named()["x"].ID
	_, page, _ := get(t, p, "/")
	token := tokenInPage.FindStringSubmatch(page)[1]
	if len(token) < 20 {
		t.Fatalf("token %q", token)
	}
	body, _ := json.Marshal(map[string]string{"id": id, "holder": "a:1"})
	const kind = "Content-Type: application/json"
	right := "X-Pawl-Token: " + token
	for _, c := range []struct {
		method, body string
		want         int
		headers      []string
	}{
		{"GET", "", 405, []string{kind, right}},
		{"PUT", string(body), 405, []string{kind, right}},
		{"POST", string(body), 403, []string{kind}},
		{"POST", string(body), 403, []string{kind, "X-Pawl-Token: wrong"}},
		{"POST", string(body), 403, []string{kind, right, "Sec-Fetch-Site: cross-site"}},
		{"POST", string(body), 403, []string{kind, right, "Origin: http://evil.example"}},
		{"POST", string(body), 421, []string{kind, right, "Host: evil.example"}},
		{"POST", string(body), 415, []string{"Content-Type: text/plain", right}},
		{"POST", `{"id":"` + id + `"}`, 400, []string{kind, right}},
		{"POST", `{"id":"` + strings.Repeat("x", 600_000) + `","holder":"a:1"}`, 400, []string{kind, right}},
		{"POST", `{"id":"unknown","holder":"a:1"}`, 404, []string{kind, right}},
	} {
		if code, text, _ := send(t, p, c.method, "/api/unlock", c.body, c.headers...); code != c.want {
			t.Errorf("%s %v: %d %s, want %d", c.method, c.headers, code, text, c.want)
		}
	}
	if unlocked != nil {
		t.Fatalf("unlocked %v", unlocked)
	}
	if code, text, _ := send(t, p, "POST", "/api/unlock", string(body), kind, right); code != 200 || text != `{"removed":1}`+"\n" {
		t.Fatal(code, text)
	}
	if fmt.Sprint(unlocked) != "[x of a:1]" || !strings.Contains(logged.String(), "lock=x holder=a:1 removed=1") {
		t.Errorf("%v, logged %s", unlocked, &logged)
	}
	st.until("it is gone", func(rows map[string]row) bool { return len(rows) == 0 })
	if v := inspect(t, p, "id="+id); len(v.Events) < 2 || v.Events[0].What+v.Events[1].What != "freeunlocked" {
		t.Errorf("%+v", v.Events)
	}

	// Without the flag there is no token, and nothing to send it to.
	p = serve(t, f)
	_, page, _ = get(t, p, "/")
	if tokenInPage.FindStringSubmatch(page)[1] != "" {
		t.Error("there is a token")
	}
	for _, token := range []string{"X-Pawl-Token: ", right} {
		if code, text, _ := send(t, p, "POST", "/api/unlock", string(body), kind, token); code != 403 || !strings.Contains(text, "--allow-unlock") {
			t.Error(code, text)
		}
	}
}
