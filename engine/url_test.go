package engine

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every URL that a page of the documentation shows can be used as it stands. The pages
// show every scheme.
func TestURLsOfTheDocumentationAreGood(t *testing.T) {
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
		if _, err := ParseURL(url[1]); err != nil {
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

func TestSentinelsListenOnAPortOfTheirOwn(t *testing.T) {
	t.Parallel()
	if c := Defaulted(Config{Topology: "sentinel", Master: "m"}); c.Addrs[0] != "127.0.0.1:26379" {
		t.Error(c.Addrs)
	}
}

// Nothing of a password gets into an error, and none is taken for a host.
func TestListsOfHostsAreReadWithCare(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"redis+cluster://user:hunter2%40h1:7000,h2:7000",
		"redis+cluster://:hunter2",
		"redis+cluster://user:hunter2@h1:7000,user:hunter2@h2:7000",
		"redis+sentinel://h1,user:hunter2@h2/mymaster",
	} {
		c, err := ParseURL(url)
		if !errors.Is(err, ErrInvalid) || hasText(err, "hunter2") {
			t.Errorf("%s: %+v, %v", url, c.Addrs, err)
		}
	}
}

// A setting that can be given is listed, and what is listed can be given.
func TestUnknownSettingIsToldAllThatAreKnown(t *testing.T) {
	t.Parallel()
	_, err := ParseURL("redis://h?x=1")
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
		if _, err := ParseURL("redis://h?" + name + "=?"); err != nil && strings.Contains(err.Error(), "not known") {
			t.Errorf("%s is listed: %v", name, err)
		}
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/configuration.md lacks %s", name)
		}
	}
	if !slices.Contains(known, "fair_wait") {
		t.Errorf("these are known: %s", list)
	}
}
