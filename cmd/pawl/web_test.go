package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// pageOf waits for the address of the page, and asks it for something.
type pageOf struct {
	t   *testing.T
	url string
}

func startWeb(t *testing.T, url string, args ...string) (*invocation, *pageOf) {
	t.Helper()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reader.Close() })
	v := prepare(t, nil, append([]string{"web", "--addr", url, "--listen", "127.0.0.1:0", "--every", "100ms"}, args...)...)
	v.cmd.Stdout = writer
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	writer.Close()
	t.Cleanup(func() {
		if v.cmd.ProcessState == nil {
			_ = v.cmd.Process.Kill()
			_ = v.cmd.Wait()
		}
	})
	line := make([]byte, 200)
	n, _ := reader.Read(line)
	found := regexp.MustCompile(`http://\S+/`).FindString(string(line[:n]))
	if found == "" {
		t.Fatalf("it prints %q, %s", line[:n], v.stderr.String())
	}
	return v, &pageOf{t, found}
}

func (p *pageOf) ask(method, path, body string, headers ...string) (int, string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 20*time.Second)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, method, p.url+path, strings.NewReader(body))
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(text)
}

func TestWeb_UnlocksEachKind_AsUnlockDoes(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	e := openEngine(t, s.URL())
	ctx := t.Context()
	permits := e.PermitSemaphore("permits")
	if ok, err := permits.TrySetPermits(ctx, 3); !ok || err != nil {
		t.Fatal(ok, err)
	}
	locks := map[string]engine.Lock{
		"mutex": e.Mutex("mutex"), "fair": e.FairMutex("fair"), "fenced": e.FencedMutex("fenced"), "read": e.RWMutex("read").Reader(),
		"write": e.RWMutex("write").Writer(), "permits": permits.Permits(1),
	}
	for _, l := range locks {
		if _, err := l.Lock(ctx); err != nil {
			t.Fatal(err)
		}
	}
	v, p := startWeb(t, s.URL(), "--allow-unlock")
	_, text := p.ask("GET", "", "")
	token := regexp.MustCompile(`pawl-token" content="(\w+)"`).FindStringSubmatch(text)[1]
	for name := range locks {
		var view struct {
			Holders []struct{ Raw string }
		}
		see := func() {
			_, text := p.ask("GET", "api/lock?name="+name, "")
			view.Holders = nil
			if err := json.Unmarshal([]byte(text), &view); err != nil {
				t.Fatal(err, text)
			}
		}
		see()
		if len(view.Holders) != 1 {
			t.Fatalf("%s: %+v", name, view)
		}
		body, _ := json.Marshal(map[string]string{"name": name, "holder": view.Holders[0].Raw})
		code, text := p.ask("POST", "api/unlock", string(body), "Content-Type", "application/json", "X-Pawl-Token", token)
		if see(); code != 200 || text != "{\"removed\":1}\n" || len(view.Holders) != 0 {
			t.Errorf("%s: %d %s, then %+v", name, code, text, view)
		}
	}
	_ = v.cmd.Process.Kill()
	v.wait(t)
	if n := strings.Count(v.stderr.String(), "force-unlock"); n != len(locks) {
		t.Errorf("logged %d times: %s", n, v.stderr.String())
	}
}

func TestWeb_Interrupted_EndsWithPagesOpen(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no signals that one process sends another")
	}
	s := redistest.Start(t)
	v, p := startWeb(t, s.URL(), "orders:*")
	hold(t, s.URL(), "orders:1")
	res, err := http.Get(p.url + "api/events")
	if err != nil || res.StatusCode != 200 {
		t.Fatal(res, err)
	}
	defer res.Body.Close()
	if code, text := p.ask("POST", "api/unlock", "{}"); code != 403 || !strings.Contains(text, "--allow-unlock") {
		t.Error(code, text)
	}
	if err := v.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	v.wait(t).expect(t, 0)
	if _, err := io.ReadAll(res.Body); err != nil || time.Since(began) > 10*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}
