package main

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/pawl-lock/pawl/bench"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/exit"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/target"
)

// benchProcessCommand runs this program again, as one of the processes that contend.
func benchProcessCommand(ctx context.Context, number int, url string, server *target.Flag, profile string) *exec.Cmd {
	args := []string{"contend"}
	if profile != "" {
		args = append(args, "--profile", filepath.Join(profile, "process-"+strconv.Itoa(number+1)))
	}
	return selfCommand(ctx, url, server, args...)
}

func newBenchProcessCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "contend", Hidden: true, Args: noArgs}
	server := target.AddFlag(cmd)
	profile := cmd.Flags().String("profile", "", "")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		signal.Ignore(exit.EndSignals...) // Ctrl-C reaches the whole group; the coordinator ends its processes
		err := profiled(*profile, func() error {
			return bench.RunProcess(cmd.Context(), server.URL(), server.Parse, os.Stdin, os.Stdout)
		})
		if err == nil {
			return nil
		}
		return &exit.Error{Code: exit.Code(err)} // the coordinator says why
	}
	return cmd
}
