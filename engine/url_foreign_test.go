package engine

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// same compares what two URLs became, with what no text of a Config shows.
func same(a, b Config) error {
	text := func(c Config) string {
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
				c, err := ParseURL(url)
				if refusal, refused := strings.CutPrefix(want, "refused: "); refused {
					if !errors.Is(err, ErrInvalid) || !hasText(err, strings.Trim(refusal, "`")) || hasText(err, "pw") {
						t.Errorf("%q: %v, want %s", url, err, want)
					}
					continue
				}
				as, bad := ParseURL(strings.Trim(want, "`"))
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
func TestParseURL_SeveralForeignSettings_AreToldAtOnce(t *testing.T) {
	t.Parallel()
	const url = "rediss://h?zone=1&skip_verify=1&alpha=2&tls_cert_file=c&pool_size=3"
	var first error
	for range 20 {
		_, err := ParseURL(url)
		for _, text := range []string{"skip_verify is another client's", "tls_cert_file is another client's", `"alpha", "zone"`} {
			if !hasText(err, text) {
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
		if _, err := ParseURL(url); !errors.Is(err, ErrInvalid) || !hasText(err, text) {
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
		c, err := ParseURL(url)
		text := func(c *tls.Config) string {
			switch {
			case c == nil:
				return "none"
			case c == NoTLS:
				return "NoTLS"
			case c.ServerName != "":
				return "TLS:" + c.ServerName
			}
			return "TLS"
		}
		if got := text(c.TLS) + " " + text(c.SentinelTLS); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", url, got, err, want)
		}
		if NoTLS.ServerName != "" {
			t.Fatal("NoTLS was changed")
		}
	}
}
