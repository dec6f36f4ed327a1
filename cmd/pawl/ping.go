package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/target"
	"github.com/pawl-lock/pawl/internal/serverconfig"
)

func newPingCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ping",
		Short: "Check that the server answers",
		Long: `ping connects as the other commands do (with password, database, scripts and a
subscription connection) and reports how long one round trip takes.`,
		Example: `  pawl ping
  pawl ping --addr unix:///run/redis/redis.sock`,
		Args: noArgs,
	}
	server := target.AddFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := server.Config()
		if err != nil {
			return err
		}
		cfg.Logger = newReports(func(format string, args ...any) { fmt.Fprintf(cmd.ErrOrStderr(), "pawl: "+format+"\n", args...) }, true)
		eng, err := server.Connect(cmd.Context(), cfg, target.Patience{})
		if err != nil {
			return err
		}
		defer eng.Close()
		start := time.Now()
		if err := eng.Ping(cmd.Context()); err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s answered in %v\n", serverconfig.Server(cfg), time.Since(start).Round(time.Microsecond))
		return err
	}
	return cmd
}
