package engine_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

func TestConfig_BadFields_AreReportedAtOnce(t *testing.T) {
	t.Parallel()
	bad := engine.Config{
		Addrs: []string{"nowhere", ""}, Username: "ada", DB: -1, Lease: time.Millisecond, Margin: -time.Second,
		CommandTimeout: -1, DialTimeout: -1, CloseTimeout: -1, CommandConns: 65, EventLoops: -1, MaxInFlight: -1,
	}
	_, err := engine.New(context.Background(), bad)
	if !errors.Is(err, engine.ErrInvalid) {
		t.Fatalf("New: %v, want ErrInvalid", err)
	}
	for _, field := range []string{"Addrs (2)", `Addrs ("nowhere")`, `Addrs ("")`, "Username", "DB", "Lease", "Margin",
		"CommandTimeout", "DialTimeout", "CloseTimeout", "CommandConns", "EventLoops", "MaxInFlight"} {
		if !testkit.HasText(err, "Config."+field) {
			t.Errorf("%s is not reported:\n%v", field, err)
		}
	}
	for line := range strings.Lines(err.Error()) {
		if !strings.Contains(line, "must") {
			t.Errorf("a line does not say what must be: %s", line)
		}
	}
}

// A field that was left alone is not called bad because of another one.
func TestConfig_BadFields_DefaultsAreNotReported(t *testing.T) {
	t.Parallel()
	err := testkit.ErrOf(engine.New(context.Background(), engine.Config{Lease: time.Nanosecond}))
	if !testkit.HasText(err, "Config.Lease (1ns) must be at least 30ms") || testkit.HasText(err, "Margin") {
		t.Error(err)
	}
}

func TestConfig_Contradictions_AreReported(t *testing.T) {
	t.Parallel()
	secret := func(context.Context) (string, string, error) { return "", "", nil }
	for text, c := range map[string]engine.Config{
		"Credentials must not be combined":  {Credentials: secret, Password: "hunter2hunter2"},
		"Username (\"ada\") must come with": {Username: "ada"},
		"less than half of Lease":           {Lease: time.Second, Margin: 500 * time.Millisecond},
		"must be at most":                   {Lease: 1 << 62},
		"one server":                        {Addrs: []string{"a:1", "b:1"}},
		"Topology (\"round\") must be":      {Topology: "round"},
		"Master (\"\") must be set":         {Topology: "sentinel"},
		"Master (\"m\") must be set":        {Topology: "cluster", Master: "m"},
		"SentinelUsername and":              {Topology: "cluster", SentinelPassword: "hunter2"},
		"SentinelUsername (\"u\")":          {Topology: "sentinel", Master: "m", SentinelUsername: "u"},
		"AddrMap must be nil":               {AddrMap: func(a string) string { return a }},
		"SentinelTLS and":                   {Topology: "cluster", SentinelTLS: engine.NoTLS},
		"SentinelCredentials must be":       {SentinelCredentials: secret},
		"SentinelCredentials must not be":   {Topology: "sentinel", Master: "m", SentinelCredentials: secret, SentinelPassword: "hunter2"},
		"RefreshTLS must come with TLS":     {RefreshTLS: func(*tls.Config) error { return nil }},
		"ShardedPubSub (\"yes\") must be":   {Topology: "cluster", ShardedPubSub: "yes"},
		"ShardedPubSub (\"both\") must be auto, on or off: while some engines use sharded messages and others do not, waiters find a release by their look (10 s), " +
			"and a FairMutex does not keep its order; restart all engines after the upgrade from Redis 6": {Topology: "cluster", ShardedPubSub: "both"},
		"without Topology cluster": {ShardedPubSub: "on"},
		"know each other by it":    {Topology: "replicas", Addrs: []string{"/run/redis.sock"}},
		"host:port":                {Addrs: []string{"a:99999"}},
	} {
		_, err := engine.New(context.Background(), c)
		if !errors.Is(err, engine.ErrInvalid) || !testkit.HasText(err, text) || testkit.HasText(err, "hunter2") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A systemd unit that is instantiated has an @ in its folder.
func TestParseURL_UnixSocketWithAnAt_IsRead(t *testing.T) {
	t.Parallel()
	const path = "/run/redis@orders/redis.sock"
	c, err := engine.ParseURL("unix://:hunter2@" + path)
	if err != nil || c.Addrs[0] != path || c.Password != "hunter2" {
		t.Errorf("%v, %v", c, err)
	}
	if text := c.String(); !strings.Contains(text, path) || strings.Contains(text, "hunter2") {
		t.Error(text)
	}
}

// Passwords that a machine made are often in base64.
func TestParseURL_PlusInAPassword_IsAPlus(t *testing.T) {
	t.Parallel()
	const password = "hun+ter/2=="
	c, err := engine.ParseURL("redis+sentinel://:hun+ter%2F2==@h/m?lease=20s&sentinel_password=" + password)
	if err != nil || c.Password != password || c.SentinelPassword != password {
		t.Errorf("%q, %q, %v", c.Password, c.SentinelPassword, err)
	}
}

func TestConfig_Zero_IsValid(t *testing.T) {
	t.Parallel()
	c := engine.Defaulted(engine.Config{})
	if err := engine.Valid(c); err != nil {
		t.Fatal(err)
	}
	if c.Addrs[0] != "127.0.0.1:6379" || c.Lease != 30*time.Second || c.CommandConns != 1 {
		t.Errorf("defaults: %+v", c)
	}
}

func TestParseURL_Settings_AreRead(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]engine.Config{
		"redis://h":                                    {Addrs: []string{"h:6379"}},
		"redis://h:1/3":                                {Addrs: []string{"h:1"}, DB: 3},
		"redis://h:1/?db=3":                            {Addrs: []string{"h:1"}, DB: 3},
		"redis://:pw@h":                                {Addrs: []string{"h:6379"}, Password: "pw"},
		"redis://ada:p%40%2F%23w@[::1]:7":              {Addrs: []string{"[::1]:7"}, Username: "ada", Password: "p@/#w"},
		"redis://default:pw@h":                         {Addrs: []string{"h:6379"}, Password: "pw"},
		"unix:///run/redis.sock?db=2":                  {Addrs: []string{"/run/redis.sock"}, DB: 2},
		"unix://ada:pw@/run/r.sock":                    {Addrs: []string{"/run/r.sock"}, Username: "ada", Password: "pw"},
		"redis://h?lease=10s&margin=100ms":             {Addrs: []string{"h:6379"}, Lease: 10 * time.Second, Margin: 100 * time.Millisecond},
		"redis://h?command_conns=2&client_name=orders": {Addrs: []string{"h:6379"}, CommandConns: 2, ClientName: "orders"},
		"redis://h?command_timeout=1s&dial_timeout=2s&close_timeout=3s": {Addrs: []string{"h:6379"},
			CommandTimeout: time.Second, DialTimeout: 2 * time.Second, CloseTimeout: 3 * time.Second},
		"redis://h?hand_over_time=5ms":                           {Addrs: []string{"h:6379"}, HandOverTime: 5 * time.Millisecond},
		"redis+cluster://a,b:1,[::1],[::2]:3?sharded_pubsub=off": {Topology: "cluster", Addrs: []string{"a:6379", "b:1", "[::1]:6379", "[::2]:3"}, ShardedPubSub: "off"},
		"redis+sentinel://ada:p%2Cw@a,b:1/orders/2?sentinel_username=s&sentinel_password=t": {Topology: "sentinel", Addrs: []string{"a:26379", "b:1"},
			Master: "orders", DB: 2, Username: "ada", Password: "p,w", SentinelUsername: "s", SentinelPassword: "t"},
		"redis+cluster://a/1":    {Topology: "cluster", Addrs: []string{"a:6379"}, DB: 1},
		"redis+replicas://a,b/1": {Topology: "replicas", Addrs: []string{"a:6379", "b:6379"}, DB: 1},
	} {
		got, err := engine.ParseURL(url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		same := slices.Equal(got.Addrs, want.Addrs) && got.Topology == want.Topology && got.Master == want.Master &&
			got.SentinelUsername == want.SentinelUsername && got.SentinelPassword == want.SentinelPassword &&
			got.ShardedPubSub == want.ShardedPubSub && got.DB == want.DB && got.Username == want.Username &&
			got.Password == want.Password && got.Lease == want.Lease && got.Margin == want.Margin && got.HandOverTime == want.HandOverTime &&
			got.CommandConns == want.CommandConns && got.ClientName == want.ClientName && got.TLS == nil &&
			got.CommandTimeout == want.CommandTimeout && got.DialTimeout == want.DialTimeout && got.CloseTimeout == want.CloseTimeout
		if !same {
			t.Errorf("%s: %+v, want %+v", url, got, want)
		}
	}
	c, err := engine.ParseURL("rediss://redis.example.org")
	if err != nil || c.TLS == nil || c.TLS.ServerName != "redis.example.org" {
		t.Errorf("rediss: %+v, %v", c, err)
	}
}

func TestParseURL_BadURLs_AreRefused(t *testing.T) {
	t.Parallel()
	for url, text := range map[string]string{
		"":                                   "no scheme",
		"localhost:6379":                     "scheme",
		"http://h":                           `scheme "http"`,
		"redis://":                           "no host",
		"redis://:pw@":                       "no host",
		"redis://h:port":                     "cannot be parsed",
		"redis://h:99999":                    "must be host:port",
		"redis://h/one":                      `path ("one") must be a database number`,
		"redis://h/-1":                       "must be a database number",
		"redis://h/1?db=2":                   "database twice",
		"redis://h/0?db=2":                   "database twice",
		"redis+sentinel://h/m/0?db=2":        "database twice",
		"redis://::1":                        "in brackets",
		"redis://2001:db8::1:6379":           "in brackets",
		"redis://h?db=x":                     "must be a number",
		"redis://h?db=1&db=2":                "2 times",
		"redis://h?lease=0s":                 "must be a positive duration",
		"redis://h?lease=10":                 "must be a positive duration",
		"redis://h?lease=1ms":                "at least 30ms",
		"redis://h?margin=20s":               "less than half",
		"redis://h?hand_over_time=0s":        "hand_over_time (\"0s\") must be a positive duration",
		"redis://h?hand_over_time=-1ms":      "must be a positive duration",
		"redis://h?command_conns=100":        "within 1 and 64",
		"redis://h?leese=10s":                `setting "leese" is not known`,
		"redis://h?a=%zz":                    "query cannot be parsed",
		"redis://h#x":                        "fragment",
		"redis://ada@h":                      "a user without a password",
		"redis://ada:hunter2%zz@h":           "cannot be parsed",
		"redis://ada:12/hunter2@h":           "behind its host",
		"redis://ada:12?hunter2@h":           "behind its host",
		"redis://ada:hunter2/x@h":            "cannot be parsed",
		"redis://ada:12#hunter2@h":           "behind its host",
		"redis:ada:hunter2@h":                "behind its host",
		"unix://run/redis.sock":              "absolute path",
		"unix:":                              "absolute path",
		"redis://ada:hunter2@h/x hunter":     "must be a database number",
		"redis+cluster://":                   "no host",
		"redis+cluster://ada:hunter2@":       "no host",
		"redis+cluster://a,,b":               "empty host",
		"redis+cluster://a:x":                "must be host:port",
		"redis+sentinel://a":                 "what the sentinels call",
		"redis+ring://a":                     "scheme",
		"redis+cluster://ada:1,/hunter2@h,i": "behind its host",

		"redis+sentinel://h/m?sentinel_password=1&hunter2":   "& as %26",
		"redis+sentinel://h/m?sentinel_password=1&hunter2=3": "& as %26",
		"redis+sentinel://h/m?sentinel_password=1;hunter2":   "query cannot be parsed",
		"redis://h?auth=1&hunter2":                           "not known",
		"redis://h?api-token=1&hunter2=3":                    "not known",
		"redis://h?Password=1&hunter2&hunter2":               "not known",
	} {
		_, err := engine.ParseURL(url)
		if !errors.Is(err, engine.ErrInvalid) || !testkit.HasText(err, text) {
			t.Errorf("%q: %v, want %q", url, err, text)
		}
		if testkit.HasText(err, "hunter2") {
			t.Errorf("%q: the password is told: %v", url, err)
		}
	}
}

// FuzzParseURL: whatever the pieces are, there is no panic, an error is ErrInvalid
// and never has the password, and what is accepted is valid.
func FuzzParseURL(f *testing.F) {
	for _, seed := range [][4]string{
		{"redis", "ada", "", "h:6379/0?lease=10s"}, {"rediss", "", "@/#?", "h"}, {"unix", "", "%41", "/run/x.sock"},
		{"redis", "", "12/", "h?db=1"}, {"redis", "u", "1?", "h/3"}, {"redis", "u", "1#", "[::1]:99"}, {"", "", "", ""},
		{"redis+cluster", "u", ",/", "h,i:1"}, {"redis+sentinel", "", "", "h,[::1]/m/2"}, {"redis", "u", "b@c/", "h"}, {"redis", "u", "b@c?", "h"}, {"redis", "u:1/", "", "h@i"},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3])
	}
	const secret = "hunter2\u2620hunter2"
	f.Fuzz(func(t *testing.T, scheme, user, odd, rest string) {
		for _, password := range []string{odd + secret, secret + odd} {
			for _, url := range []string{scheme + "://" + user + ":" + password + "@" + rest, scheme + ":" + user + ":" + password + "@" + rest} {
				c, err := engine.ParseURL(url)
				if err != nil {
					if !errors.Is(err, engine.ErrInvalid) {
						t.Errorf("%q: %v is not ErrInvalid", url, err)
					}
					if strings.Contains(err.Error(), "hunter2") {
						t.Errorf("%q: the password is told: %v", url, err)
					}
					continue
				}
				if err := engine.Valid(engine.Defaulted(c)); err != nil {
					t.Errorf("%q was accepted: %v", url, err)
				}
			}
		}
		_, _ = engine.ParseURL(rest)
	})
}

// same compares what two URLs became, with what no text of a Config shows.
func same(a, b engine.Config) error {
	text := func(c engine.Config) string {
		user, password := c.Username, c.Password
		if c.Credentials != nil {
			user, password, _ = c.Credentials(context.Background())
			user += " by Credentials"
		}
		ofTLS := func(c *tls.Config) string {
			if c == nil {
				return "none"
			}
			return fmt.Sprint(c.ServerName, c.MinVersion, c.InsecureSkipVerify)
		}
		return fmt.Sprintf("%v, %q %q, sentinels %q %q, TLS %s, sentinels %s",
			c.String(), user, password, c.SentinelUsername, c.SentinelPassword, ofTLS(c.TLS), ofTLS(c.SentinelTLS))
	}
	if x, y := text(a), text(b); x != y {
		return fmt.Errorf("%s, and not %s", x, y)
	}
	return nil
}

// The table of docs/configuration.md is true, row by row.
func TestParseURL_FormsOfOtherClients_AreAsThePageSays(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	quoted := regexp.MustCompile("`([^`]+)`")
	rows := 0
	_, table, _ := strings.Cut(string(page), "## URLs of other clients")
	table, _, _ = strings.Cut(table, "\n## ")
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.Contains(cells[1], "`") {
			continue
		}
		rows++
		want := strings.TrimSpace(cells[2])
		for _, form := range quoted.FindAllStringSubmatch(cells[1], -1) {
			for _, url := range []string{form[1], " " + form[1] + "\r\n", `"` + form[1] + `"`} {
				c, err := engine.ParseURL(url)
				if refusal, refused := strings.CutPrefix(want, "refused: "); refused {
					if !errors.Is(err, engine.ErrInvalid) || !testkit.HasText(err, strings.Trim(refusal, "`")) || testkit.HasText(err, "pw") {
						t.Errorf("%q: %v, want %s", url, err, want)
					}
					continue
				}
				as, bad := engine.ParseURL(strings.Trim(want, "`"))
				if bad != nil || err != nil {
					t.Errorf("%q: %v; %s: %v", url, err, want, bad)
				} else if err := same(c, as); err != nil {
					t.Errorf("%q is %v", url, err)
				}
			}
		}
	}
	if rows < 40 {
		t.Errorf("the table has %d rows", rows)
	}
}

// Everything that is wrong with the settings is in one error, always the same.
func TestParseURL_SeveralForeignSettings_AreReportedAtOnce(t *testing.T) {
	t.Parallel()
	const url = "rediss://h?zone=1&skip_verify=1&alpha=2&tls_cert_file=c&pool_size=3"
	var first error
	for range 20 {
		_, err := engine.ParseURL(url)
		for _, text := range []string{"skip_verify is another client's", "tls_cert_file is another client's", `"alpha", "zone"`} {
			if !testkit.HasText(err, text) {
				t.Fatalf("%v lacks %s", err, text)
			}
		}
		if first == nil {
			first = err
		}
		if err.Error() != first.Error() {
			t.Fatalf("%v, and before %v", err, first)
		}
	}
}

// A setting of ours under a foreign name counts as the same setting.
func TestParseURL_OneSettingUnderTwoNames_IsGivenTwice(t *testing.T) {
	t.Parallel()
	for url, text := range map[string]string{
		"redis://h?db=1&database=1":                          "gives db 2 times",
		"redis://h/1?database=1":                             "database twice",
		"redis+sentinel://h/a?master=b&sentinelMasterId=c":   "primary twice",
		"redis+sentinel://h/0?master=b#c":                    "primary twice",
		"redis://h?tls_server_name=x":                        "needs TLS",
		"redis+sentinel://h/m?tls_server_name=x":             "needs TLS",
		"redis+sentinel://h/m?sentinel_tls=perhaps":          "must be on or off",
		"redis+cluster://h?sentinel_tls=on":                  "without Topology sentinel",
		"rediss+sentinel://h/m?sentinel_tls=1&sentinelTls=0": "2 times",
	} {
		if _, err := engine.ParseURL(url); !errors.Is(err, engine.ErrInvalid) || !testkit.HasText(err, text) {
			t.Errorf("%s: %v, want %s", url, err, text)
		}
	}
}

func TestParseURL_TLSOfSentinels(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"redis+sentinel://h/m":                                       "none none",
		"rediss+sentinel://h/m":                                      "TLS none", // as TLS
		"rediss+sentinel://h/m?sentinel_tls=off":                     "TLS NoTLS",
		"redis+sentinel://h/m?sentinel_tls=true":                     "none TLS",
		"redis+sentinel://h/m?sentinel_tls=on&tls_server_name=x":     "none TLS:x",
		"rediss+sentinel://h/m?sentinel_tls=on&tls_server_name=x":    "TLS:x TLS:x",
		"rediss+sentinel://h/m?sentinel_tls=no&tls_server_name=x":    "TLS:x NoTLS",
		"rediss-sentinel://h/0?sentinelTls=off&tlsServerName=x#m":    "TLS:x NoTLS",
		"valkeys+sentinel://h/m?sentinel-tls=0&tls-server-name=x%2E": "TLS:x. NoTLS",
	} {
		c, err := engine.ParseURL(url)
		text := func(c *tls.Config) string {
			switch {
			case c == nil:
				return "none"
			case c == engine.NoTLS:
				return "NoTLS"
			case c.ServerName != "":
				return "TLS:" + c.ServerName
			}
			return "TLS"
		}
		if got := text(c.TLS) + " " + text(c.SentinelTLS); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", url, got, err, want)
		}
		if engine.NoTLS.ServerName != "" {
			t.Fatal("NoTLS was changed")
		}
	}
}

// messages is a slog.Handler that keeps what is logged.
type messages struct {
	slog.Handler
	mu  sync.Mutex
	all []string
}

func (m *messages) Enabled(context.Context, slog.Level) bool { return true }

func (m *messages) WithAttrs([]slog.Attr) slog.Handler { return m }

func (m *messages) WithGroup(string) slog.Handler { return m }

func (m *messages) Handle(_ context.Context, r slog.Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = append(m.all, r.Level.String()+" "+r.Message)
	return nil
}

// Somebody may have meant something by them.
func TestNew_SettingsOfOtherClients_AreLoggedOnce(t *testing.T) {
	t.Parallel()
	cfg, err := engine.ParseURL("redis://127.0.0.1:1?protocol=2&command_conns=2&pool_size=3")
	if err != nil {
		t.Fatal(err)
	}
	kept := new(messages)
	cfg.Lazy, cfg.Logger = true, slog.New(kept)
	e, err := engine.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	kept.mu.Lock()
	defer kept.mu.Unlock()
	about := slices.DeleteFunc(kept.all, func(text string) bool { return !strings.Contains(text, "other clients") })
	if len(about) != 1 || !strings.HasPrefix(about[0], "WARN pawl: the URL has settings of other clients") || !strings.HasSuffix(about[0], ": pool_size, protocol") {
		t.Errorf("%q", kept.all)
	}
}

// Whoever asks for no verification, in whatever words, is told that a URL does not do that, and
// is not taken for somebody who asks for it.
func TestParseURL_NoVerification_IsRefusedInWhateverWords(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"skip_verify", "skip_tls_verify", "tlsSkipVerify", "noverify", "tls_no_verify", "sslNoVerify", "disable_verify",
		"disableTLSVerification", "ignore_verification", "insecure", "tlsInsecure", "allowInvalidCertificates", "trustServerCertificate",
	} {
		if _, err := engine.ParseURL("rediss://h?" + name + "=true"); !errors.Is(err, engine.ErrInvalid) || !testkit.HasText(err, "--insecure-skip-verify") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := engine.ParseURL("rediss://h?" + name + "=false"); err != nil { // what the URL says anyway
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Every URL that a page of the documentation shows can be used as it stands. The pages
// show every scheme.
func TestParseURL_URLsOfTheDocumentation_AreGood(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	var text []byte
	for _, page := range append(pages, "../README.md") {
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			if !strings.Contains(line, "| refused: ") { // TestParseURL_FormsOfOtherClients has these
				text = append(text, line...)
			}
		}
	}
	seen := make(map[string]int)
	for _, url := range regexp.MustCompile("`((?:rediss?(?:\\+[a-z]+)?|unix)://[^`]+)`").FindAllStringSubmatch(string(text), -1) {
		if strings.Contains(url[1], "...") {
			continue
		}
		if _, err := engine.ParseURL(url[1]); err != nil {
			t.Errorf("%s: %v", url[1], err)
		}
		scheme, _, _ := strings.Cut(url[1], "://")
		seen[scheme]++
	}
	for _, scheme := range []string{
		"redis", "rediss", "unix", "redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel", "redis+replicas", "rediss+replicas",
	} {
		if seen[scheme] == 0 {
			t.Errorf("the documentation shows no URL with %s://", scheme)
		}
	}
}

func TestConfig_Sentinels_ListenOnAPortOfTheirOwn(t *testing.T) {
	t.Parallel()
	if c := engine.Defaulted(engine.Config{Topology: "sentinel", Master: "m"}); c.Addrs[0] != "127.0.0.1:26379" {
		t.Error(c.Addrs)
	}
}

// Nothing of a password gets into an error, and none is taken for a host.
func TestParseURL_ListsOfHosts_AreReadWithCare(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"redis+cluster://user:hunter2%40h1:7000,h2:7000",
		"redis+cluster://:hunter2",
		"redis+cluster://user:hunter2@h1:7000,user:hunter2@h2:7000",
		"redis+sentinel://h1,user:hunter2@h2/mymaster",
	} {
		c, err := engine.ParseURL(url)
		if !errors.Is(err, engine.ErrInvalid) || testkit.HasText(err, "hunter2") {
			t.Errorf("%s: %+v, %v", url, c.Addrs, err)
		}
	}
}

// A setting that can be given is listed, and what is listed can be given.
func TestParseURL_UnknownSetting_ListsTheKnownOnes(t *testing.T) {
	t.Parallel()
	_, err := engine.ParseURL("redis://h?x=1")
	_, list, ok := strings.Cut(err.Error(), "these are: ")
	if !ok {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	known := strings.Split(list, ", ")
	for _, name := range known {
		if _, err := engine.ParseURL("redis://h?" + name + "=?"); err != nil && strings.Contains(err.Error(), "not known") {
			t.Errorf("%s is listed: %v", name, err)
		}
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/configuration.md lacks %s", name)
		}
	}
	if !slices.Contains(known, "fair_wait_timeout") {
		t.Errorf("these are known: %s", list)
	}
}

func TestParseURL_FormerNameOfASetting_NamesTheNewOne(t *testing.T) {
	t.Parallel()
	for former, name := range map[string]string{
		"fair_" + "wait=1m": "fair_wait_timeout", "hand_" + "over=1s": "hand_over_time", "shard" + "ing=off": "sharded_pubsub", "lane" + "s=2": "command_conns",
	} {
		_, err := engine.ParseURL("redis://127.0.0.1?" + former)
		if !errors.Is(err, engine.ErrInvalid) || !strings.Contains(err.Error(), "it is called "+name) {
			t.Errorf("%s: %v", former, err)
		}
	}
}
