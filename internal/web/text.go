package web

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// maxShown is how many bytes of a name a row has. The view of one lock has maxWhole.
	maxShown = 200
	maxWhole = 64 << 10
	// maxClaim is how many bytes of a text that an engine says of itself are shown.
	maxClaim = 100
)

// idOf stands for a name in addresses and in the page: a name may be long, and no text.
func idOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:12])
}

// shown is a text that people can read, whatever is in it: what does not print, such as control characters,
// invalid UTF-8 or marks that change the direction of writing, is escaped as in Go. At most limit bytes of
// s are read.
func shown(s string, limit int) string {
	cut := len(s) > limit
	if cut {
		for back := 1; back < utf8.UTFMax && !utf8.RuneStart(s[limit]); back++ {
			limit-- // not inside a character
		}
		s = s[:limit]
	}
	var b strings.Builder
	b.Grow(len(s) + len("…"))
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && size == 1 || r == '\\' || !strconv.IsPrint(r) {
			quoted := strconv.Quote(s[:size])
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteString(s[:size])
		}
		s = s[size:]
	}
	if cut {
		b.WriteString("…")
	}
	return b.String()
}
