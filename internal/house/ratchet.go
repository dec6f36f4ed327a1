package house

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// RecordedFile is where the recorded values are in the repository.
const RecordedFile = "internal/house/recorded.txt"

// Recorded are the values, by key, of rows that were beyond their limits when it was written.
type Recorded map[string]int

// ParseRecorded reads lines of a key and a value. Empty lines and those that begin with # say
// nothing.
func ParseRecorded(text string) (Recorded, error) {
	r := make(Recorded)
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, value, _ := strings.Cut(line, " ")
		n, err := strconv.Atoi(strings.TrimSpace(value))
		if err != nil {
			return nil, fmt.Errorf("%q is not a key and a number", line)
		}
		if _, twice := r[key]; twice {
			return nil, fmt.Errorf("%s has two values", key)
		}
		r[key] = n
	}
	return r, nil
}

// Grown are the rows that are beyond their limit and beyond the recorded value.
func (r Recorded) Grown(rows []Row) []Row {
	return slices.DeleteFunc(slices.Clone(rows), func(row Row) bool { return !row.Over() || row.Value <= r[row.Key] })
}

// Lowered is r with values that went down. One that has come down to its limit, or whose row is
// gone, is left out.
func (r Recorded) Lowered(rows []Row) Recorded {
	lower := make(Recorded)
	for _, row := range rows {
		if old, known := r[row.Key]; known && row.Over() {
			lower[row.Key] = min(old, row.Value)
		}
	}
	return lower
}

// Format writes the values as ParseRecorded reads them, in the order of the rows.
func (r Recorded) Format(rows []Row) string {
	var text strings.Builder
	text.WriteString("# Values above their limits, which must not grow. See doc.go.\n")
	for _, row := range rows {
		if n, known := r[row.Key]; known {
			fmt.Fprintf(&text, "%s %d\n", row.Key, n)
		}
	}
	return text.String()
}
