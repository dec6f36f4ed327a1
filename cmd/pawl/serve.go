package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/exit"
	"github.com/pawl-lock/pawl/internal/embedded"
)

func newServeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the embedded server, for trials",
		Long: `serve runs the embedded server until it is interrupted. It speaks enough of the
Redis protocol for Pawl's and Redisson's locks, keeps everything in memory and asks
for no password. Use it for trials on one machine, never in production.`,
		Example: `  pawl serve --listen 127.0.0.1:6400
  PAWL_URL=redis://127.0.0.1:6400 pawl exec trial -- sleep 5`,
		Args: noArgs,
	}
	listen := cmd.Flags().String("listen", "127.0.0.1:6379", "`HOST:PORT` to listen on; port 0 picks a free one")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, stop := exit.UntilSignal(cmd.Context())
		defer stop()
		return serve(ctx, cmd, *listen)
	}
	return cmd
}

func serve(ctx context.Context, cmd *cobra.Command, addr string) error {
	server, err := embedded.Start(addr)
	if err != nil {
		return &exit.Error{Code: exit.Server, Err: fmt.Errorf("cannot listen on %q: %w; choose another address with --listen", addr, err)}
	}
	defer server.Close()
	fmt.Fprintf(cmd.OutOrStdout(), "listening on %s; end with Ctrl-C\n", server.URL())
	<-ctx.Done()
	return nil
}
