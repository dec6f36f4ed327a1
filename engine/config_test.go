package engine

import (
	"context"
	"crypto/tls"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestConfigReportsEveryBadFieldAtOnce(t *testing.T) {
	t.Parallel()
	bad := Config{
		Addrs: []string{"nowhere", ""}, Username: "ada", DB: -1, Lease: time.Millisecond, Margin: -time.Second,
		CommandTimeout: -1, DialTimeout: -1, CloseTimeout: -1, Lanes: 65, EventLoops: -1, MaxInFlight: -1,
	}
	_, err := New(context.Background(), bad)
	if !errors.Is(err, ErrInvalid) {
		t.Fatalf("New: %v, want ErrInvalid", err)
	}
	for _, field := range []string{"Addrs (2)", `Addrs ("nowhere")`, `Addrs ("")`, "Username", "DB", "Lease", "Margin",
		"CommandTimeout", "DialTimeout", "CloseTimeout", "Lanes", "EventLoops", "MaxInFlight"} {
		if !hasText(err, "Config."+field) {
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
func TestADefaultIsNotReported(t *testing.T) {
	t.Parallel()
	err := errOf(New(context.Background(), Config{Lease: time.Nanosecond}))
	if !hasText(err, "Config.Lease (1ns) must be at least 30ms") || hasText(err, "Margin") {
		t.Error(err)
	}
}

func TestConfigContradictions(t *testing.T) {
	t.Parallel()
	secret := func(context.Context) (string, string, error) { return "", "", nil }
	for text, c := range map[string]Config{
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
		"SentinelTLS and":                   {Topology: "cluster", SentinelTLS: NoTLS},
		"SentinelCredentials must be":       {SentinelCredentials: secret},
		"SentinelCredentials must not be":   {Topology: "sentinel", Master: "m", SentinelCredentials: secret, SentinelPassword: "hunter2"},
		"RefreshTLS must come with TLS":     {RefreshTLS: func(*tls.Config) error { return nil }},
		"Sharding (\"yes\") must be":        {Topology: "cluster", Sharding: "yes"},
		"Sharding (\"both\") must be auto, on or off: while some engines use sharded messages and others do not, waiters find a release by their look (10 s), " +
			"and a FairMutex does not keep its order; restart all engines after the upgrade from Redis 6": {Topology: "cluster", Sharding: "both"},
		"without Topology cluster": {Sharding: "on"},
		"know each other by it":    {Topology: "replicas", Addrs: []string{"/run/redis.sock"}},
		"host:port":                {Addrs: []string{"a:99999"}},
	} {
		_, err := New(context.Background(), c)
		if !errors.Is(err, ErrInvalid) || !hasText(err, text) || hasText(err, "hunter2") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A systemd unit that is instantiated has an @ in its folder.
func TestTheFolderOfAUnixSocketMayHaveAnAt(t *testing.T) {
	t.Parallel()
	const path = "/run/redis@orders/redis.sock"
	c, err := ParseURL("unix://:hunter2@" + path)
	if err != nil || c.Addrs[0] != path || c.Password != "hunter2" {
		t.Errorf("%v, %v", c, err)
	}
	if text := c.String(); !strings.Contains(text, path) || strings.Contains(text, "hunter2") {
		t.Error(text)
	}
}

// Passwords that a machine made are often in base64.
func TestAPlusInAPasswordIsAPlus(t *testing.T) {
	t.Parallel()
	const password = "hun+ter/2=="
	c, err := ParseURL("redis+sentinel://:hun+ter%2F2==@h/m?lease=20s&sentinel_password=" + password)
	if err != nil || c.Password != password || c.SentinelPassword != password {
		t.Errorf("%q, %q, %v", c.Password, c.SentinelPassword, err)
	}
}

func TestZeroConfigIsValid(t *testing.T) {
	t.Parallel()
	c := Defaulted(Config{})
	if err := Valid(c); err != nil {
		t.Fatal(err)
	}
	if c.Addrs[0] != "127.0.0.1:6379" || c.Lease != 30*time.Second || c.Lanes != 1 {
		t.Errorf("defaults: %+v", c)
	}
}

func TestParseURL(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]Config{
		"redis://h":                            {Addrs: []string{"h:6379"}},
		"redis://h:1/3":                        {Addrs: []string{"h:1"}, DB: 3},
		"redis://h:1/?db=3":                    {Addrs: []string{"h:1"}, DB: 3},
		"redis://:pw@h":                        {Addrs: []string{"h:6379"}, Password: "pw"},
		"redis://ada:p%40%2F%23w@[::1]:7":      {Addrs: []string{"[::1]:7"}, Username: "ada", Password: "p@/#w"},
		"redis://default:pw@h":                 {Addrs: []string{"h:6379"}, Password: "pw"},
		"unix:///run/redis.sock?db=2":          {Addrs: []string{"/run/redis.sock"}, DB: 2},
		"unix://ada:pw@/run/r.sock":            {Addrs: []string{"/run/r.sock"}, Username: "ada", Password: "pw"},
		"redis://h?lease=10s&margin=100ms":     {Addrs: []string{"h:6379"}, Lease: 10 * time.Second, Margin: 100 * time.Millisecond},
		"redis://h?lanes=2&client_name=orders": {Addrs: []string{"h:6379"}, Lanes: 2, ClientName: "orders"},
		"redis://h?command_timeout=1s&dial_timeout=2s&close_timeout=3s": {Addrs: []string{"h:6379"},
			CommandTimeout: time.Second, DialTimeout: 2 * time.Second, CloseTimeout: 3 * time.Second},
		"redis://h?hand_over=5ms":                          {Addrs: []string{"h:6379"}, HandOver: 5 * time.Millisecond},
		"redis+cluster://a,b:1,[::1],[::2]:3?sharding=off": {Topology: "cluster", Addrs: []string{"a:6379", "b:1", "[::1]:6379", "[::2]:3"}, Sharding: "off"},
		"redis+sentinel://ada:p%2Cw@a,b:1/orders/2?sentinel_username=s&sentinel_password=t": {Topology: "sentinel", Addrs: []string{"a:26379", "b:1"},
			Master: "orders", DB: 2, Username: "ada", Password: "p,w", SentinelUsername: "s", SentinelPassword: "t"},
		"redis+cluster://a/1":    {Topology: "cluster", Addrs: []string{"a:6379"}, DB: 1},
		"redis+replicas://a,b/1": {Topology: "replicas", Addrs: []string{"a:6379", "b:6379"}, DB: 1},
	} {
		got, err := ParseURL(url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		same := slices.Equal(got.Addrs, want.Addrs) && got.Topology == want.Topology && got.Master == want.Master &&
			got.SentinelUsername == want.SentinelUsername && got.SentinelPassword == want.SentinelPassword &&
			got.Sharding == want.Sharding && got.DB == want.DB && got.Username == want.Username &&
			got.Password == want.Password && got.Lease == want.Lease && got.Margin == want.Margin && got.HandOver == want.HandOver &&
			got.Lanes == want.Lanes && got.ClientName == want.ClientName && got.TLS == nil &&
			got.CommandTimeout == want.CommandTimeout && got.DialTimeout == want.DialTimeout && got.CloseTimeout == want.CloseTimeout
		if !same {
			t.Errorf("%s: %+v, want %+v", url, got, want)
		}
	}
	c, err := ParseURL("rediss://redis.example.org")
	if err != nil || c.TLS == nil || c.TLS.ServerName != "redis.example.org" {
		t.Errorf("rediss: %+v, %v", c, err)
	}
}

func TestParseURLRefusals(t *testing.T) {
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
		"redis://h?hand_over=0s":             "hand_over (\"0s\") must be a positive duration",
		"redis://h?hand_over=-1ms":           "must be a positive duration",
		"redis://h?lanes=100":                "within 1 and 64",
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
		_, err := ParseURL(url)
		if !errors.Is(err, ErrInvalid) || !hasText(err, text) {
			t.Errorf("%q: %v, want %q", url, err, text)
		}
		if hasText(err, "hunter2") {
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
				c, err := ParseURL(url)
				if err != nil {
					if !errors.Is(err, ErrInvalid) {
						t.Errorf("%q: %v is not ErrInvalid", url, err)
					}
					if strings.Contains(err.Error(), "hunter2") {
						t.Errorf("%q: the password is told: %v", url, err)
					}
					continue
				}
				if err := Valid(Defaulted(c)); err != nil {
					t.Errorf("%q was accepted: %v", url, err)
				}
			}
		}
		_, _ = ParseURL(rest)
	})
}
