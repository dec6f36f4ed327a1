package respio

import (
	"slices"
	"strings"
)

// Command is one command, as rules of the test servers see it.
type Command struct {
	Conn  int      // which connection, counted from 1 in order of arrival
	Words []string // as sent
}

// Name returns the first word in upper case, "" if there is none.
func (c Command) Name() string {
	if len(c.Words) == 0 {
		return ""
	}
	return strings.ToUpper(c.Words[0])
}

// Match picks commands.
type Match func(c Command) bool

// Is matches commands that begin with these words, in any case.
func Is(words ...string) Match {
	return func(c Command) bool {
		return len(words) <= len(c.Words) && slices.EqualFunc(words, c.Words[:len(words)], strings.EqualFold)
	}
}

// Has matches commands that contain word, exactly, anywhere after the first.
func Has(word string) Match {
	return func(c Command) bool { return len(c.Words) > 1 && slices.Contains(c.Words[1:], word) }
}
