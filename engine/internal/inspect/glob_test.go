package inspect

import (
	"strings"
	"testing"
	"testing/quick"
)

func TestMatch_Patterns_AreTheServers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"", "", true}, {"", "a", false}, {"*", "", true}, {"*", "a:b", true}, {"orders:*", "orders:42", true},
		{"orders:*", "order:42", false}, {"*:42", "orders:42", true}, {"*a*b", "xaxb", true}, {"*a*b", "xbxa", false},
		{"h?llo", "hello", true}, {"h?llo", "hllo", false}, {"h[ae]llo", "hallo", true}, {"h[ae]llo", "hillo", false},
		{"h[^e]llo", "hallo", true}, {"h[^e]llo", "hello", false}, {"h[a-c]llo", "hbllo", true}, {"h[c-a]llo", "hbllo", true},
		{`a\*`, "a*", true}, {`a\*`, "ab", false}, {`a\`, `a\`, true}, {"a[", "ab", false}, {"a[b", "ab", true},
		{"**", "x", true}, {"a**b", "ab", true}, {`[\]]`, "]", true}, {"\xff*", "\xff\x00", true},
	} {
		if got := Match(c.pattern, c.name); got != c.want {
			t.Errorf("%q of %q: %t", c.pattern, c.name, got)
		}
	}
}

// simple is Match without classes and escapes, as its definition has it.
func simple(pattern, name string) bool {
	switch {
	case pattern == "":
		return name == ""
	case pattern[0] == '*':
		return simple(pattern[1:], name) || name != "" && simple(pattern, name[1:])
	}
	return name != "" && (pattern[0] == '?' || pattern[0] == name[0]) && simple(pattern[1:], name[1:])
}

func TestMatch_Random_IsItsDefinition(t *testing.T) {
	t.Parallel()
	from := func(letters string, n uint32, most int) string {
		var b strings.Builder
		for range n % uint32(most) {
			n /= 2
			b.WriteByte(letters[int(n)%len(letters)])
		}
		return b.String()
	}
	if err := quick.Check(func(p, n uint32) bool {
		pattern, name := from("ab*?", p, 10), from("ab", n, 12)
		return Match(pattern, name) == simple(pattern, name)
	}, &quick.Config{MaxCount: 20_000}); err != nil {
		t.Error(err)
	}
}

// A pattern comes from anybody who may publish.
func TestMatch_ManyStars_TakesNoTime(t *testing.T) {
	t.Parallel()
	if Match(strings.Repeat("*a", 1000)+"b", strings.Repeat("a", 20_000)) {
		t.Error("it matches")
	}
}
