package redistest_test

import (
	"bytes"
	"fmt"
	"os"
)

const parentDeathSignal = true

// alive reports whether pid runs; a zombie that nobody has reaped does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := bytes.Cut(stat, []byte(") "))
	return len(state) > 0 && state[0] != 'Z'
}
