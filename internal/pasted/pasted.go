// Package pasted reads texts as they come out of files, secrets and shells.
package pasted

import "strings"

// Text returns a text without what surrounds it by accident: blanks, line breaks, a byte order
// mark, and quotes around all of it. It is for texts that begin and end with none of these.
func Text(s string) string {
	s = strings.TrimSpace(strings.TrimPrefix(s, "\ufeff"))
	for _, quote := range []string{`"`, `'`, "`"} {
		if len(s) >= 2 && strings.HasPrefix(s, quote) && strings.HasSuffix(s, quote) {
			return strings.TrimSpace(s[1 : len(s)-1])
		}
	}
	return s
}

// Secret returns a password without the line break that ends a file. Everything else may belong
// to it.
func Secret(s string) string { return strings.TrimRight(s, "\r\n") }

// Doubtful says what a password has around it that hardly belongs to it; "" for nothing.
func Doubtful(s string) string {
	switch trimmed := strings.TrimSpace(s); {
	case s == "":
		return ""
	case trimmed != s:
		return "a blank or a line break at its beginning or end"
	case Text(s) != s:
		return "quotes around it"
	}
	return ""
}
