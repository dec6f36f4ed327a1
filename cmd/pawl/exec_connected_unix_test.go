//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/target"
	"github.com/pawl-lock/pawl/internal/execlock"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// signalledEnv has this test run as the process that is signalled.
const signalledEnv = "PAWL_TEST_SIGNALLED"

// Go would print its stacks for a SIGQUIT that finds nobody, and other signals would kill pawl.
func TestExecMissesNoSignalBetweenConnectingAndWaiting(t *testing.T) {
	t.Parallel()
	if sig := os.Getenv(signalledEnv); sig != "" {
		connectAndSignal(sig)
	}
	s := redistest.Start(t)
	hold(t, s.URL(), "a")
	for _, sig := range []syscall.Signal{syscall.SIGQUIT, syscall.SIGTERM} {
		env := []string{target.URLEnv + "=" + s.URL(), signalledEnv + "=" + strconv.Itoa(int(sig)), asPawlEnv + "="}
		pawl(t, env, "-test.run=^"+t.Name()+"$").expect(t, 0, "ended by signal while waiting for the lock: "+sig.String())
	}
}

// connectAndSignal is what exec does, and a signal that comes as soon as it can.
func connectAndSignal(number string) {
	cmd := &cobra.Command{}
	cmd.SetContext(context.Background())
	f, cfg := &execFlags{server: target.AddFlag(cmd)}, execlock.Config{Names: []string{"a"}, Wait: -1}
	engines, err := f.connect(cmd, &cfg)
	if err == nil {
		sig, _ := strconv.Atoi(number)
		_ = syscall.Kill(os.Getpid(), syscall.Signal(sig))
		_, err = execlock.Run(cmd.Context(), engines, cfg)
	}
	fmt.Println(err)
	os.Exit(0)
}
