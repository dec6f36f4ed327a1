package main

import (
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/exit"
	"github.com/pawl-lock/pawl/internal/execlock"
)

// checkKind refuses what does not go with the kind of lock.
func (f *execFlags) checkKind(cmd *cobra.Command) error {
	kind := execlock.Kind(f.kind)
	several, minHold := f.several(), cmd.Flags().Changed("min-hold")
	switch {
	case cmd.Flags().Changed("permits") && kind != execlock.Semaphore:
		return exit.Usagef(cmd, "--permits is for a semaphore: add --kind semaphore, or leave it out")
	case cmd.Flags().Changed("permits") && (f.permits < 1 || f.permits > math.MaxInt32):
		return exit.Usagef(cmd, "--permits %d must be at least 1, and fit into 32 bits", f.permits)
	case len(f.quorum) > 0 && kind != execlock.Mutex:
		return exit.Usagef(cmd, "--quorum goes with --kind mutex only: for a lock of kind %s name one server with --addr", kind)
	case several && kind == execlock.Semaphore:
		return exit.Usagef(cmd, "--kind semaphore goes with one name: for several semaphores, run one pawl exec under another")
	case several && kind == execlock.Fenced:
		return exit.Usagef(cmd, "--kind fenced goes with one name: each lock has a token of its own, and $%s has room for one", execlock.TokenEnv)
	case minHold && kind == execlock.Semaphore:
		return exit.Usagef(cmd, "--min-hold does not go with --kind semaphore: it keeps others out, and other permits are there to be had")
	case minHold && kind == execlock.Read:
		return exit.Usagef(cmd, "--min-hold does not go with --kind read: it keeps others out, and a read lock lets readers in")
	}
	return nil
}

// oneOf lists what a flag may be: a, b or c.
func oneOf(values []string) string {
	last := len(values) - 1
	return strings.Join(values[:last], ", ") + " or " + values[last]
}
