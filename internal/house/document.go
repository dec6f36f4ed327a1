package house

import (
	"fmt"
	"strings"
)

// removalItem begins the item of docs/promises.md on locks that others remove.
const removalItem = "**Removal by others**"

// itemLines counts the lines of a list's item, empty ones aside. The item ends with the next one
// of its list, or with what is not indented.
func itemLines(text, item string) (int, error) {
	n := 0
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "- "+item):
			n = 1
		case n == 0 || line == "":
		case strings.HasPrefix(line, "  "):
			n++
		default:
			return n, nil
		}
	}
	if n == 0 {
		return 0, fmt.Errorf("no item %s", item)
	}
	return n, nil
}
