package engine

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// Every URL that the README shows can be used as it stands.
func TestURLsOfTheReadmeAreGood(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]int)
	for _, url := range regexp.MustCompile("`((?:rediss?(?:\\+[a-z]+)?|unix)://[^`]+)`").FindAllStringSubmatch(string(readme), -1) {
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
			t.Errorf("the README shows no URL with %s://", scheme)
		}
	}
}

func TestSentinelsListenOnAPortOfTheirOwn(t *testing.T) {
	t.Parallel()
	if c := (Config{Topology: "sentinel", Master: "m"}).withDefaults(); c.Addrs[0] != "127.0.0.1:26379" {
		t.Error(c.Addrs)
	}
}
