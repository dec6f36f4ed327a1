package script

import (
	"regexp"
	"strings"
	"testing"
)

var (
	anyCall     = regexp.MustCompile(`redis\s*[.\[:]\s*['"]?p?call\b`)
	literalCall = regexp.MustCompile(`redis\.p?call\('([A-Z]+)'(?:, ([^,)]*))?`)
)

// keyless are the commands that have no key.
var keyless = map[string]bool{"TIME": true, "PUBLISH": true, "SPUBLISH": true}

// Some servers and proxies read a script before they run it: they refuse one that calls a command
// by a variable, or has a key that is none of KEYS. So the name of a command is a literal, and a key is
// KEYS[...]: but for the timeout keys of readers, which only the hash names.
func TestScripts_CallCommandsByLiteralsAndKeysByKEYS(t *testing.T) {
	t.Parallel()
	for _, s := range all {
		if calls, literals := anyCall.FindAllString(s.Text, -1), literalCall.FindAllStringSubmatch(s.Text, -1); len(calls) != len(literals) {
			t.Errorf("%s: %d of %d calls do not name their command by a literal", s.Name, len(calls)-len(literals), len(calls))
		}
		for _, m := range literalCall.FindAllStringSubmatch(s.Text, -1) {
			command, key := m[1], m[2]
			if keyless[command] || strings.HasPrefix(key, "KEYS[") {
				continue
			}
			if s == RWRelease && strings.HasPrefix(key, "timeout(") || s == WriteRetire && strings.HasPrefix(key, "timeout(") ||
				s == RWForce && strings.HasSuffix(key, "':rwlock_timeout:' .. i") {
				continue
			}
			t.Errorf("%s: the key of %s is %q, and none of KEYS", s.Name, command, key)
		}
	}
}

// The pattern must see what it is for.
func TestScripts_PatternOfCallsFindsVariables(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"redis.call(verb, KEYS[1])", "redis.pcall(...)", "local ask = redis.call", "redis['call']('GET')", "redis.call( 'GET', KEYS[1])",
	} {
		if len(anyCall.FindAllString(text, -1)) == len(literalCall.FindAllString(text, -1)) {
			t.Errorf("not found: %s", text)
		}
	}
}
