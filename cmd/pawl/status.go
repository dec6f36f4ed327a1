package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-lock/pawl/engine"
)

func newStatusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status NAME",
		Short: "Show who holds a lock",
		Long: `status asks the server who holds a lock and what its lease has left. It changes
nothing, and its exit code is 0 for a free lock and a held one.

With --format json the answer is one object: name, locked, mode, ttl_ms (null if
the key has no expiry, 0 for a free lock) and holders, each with id and count.`,
		Example: `  pawl status nightly-report
  pawl status nightly-report --format json | jq .locked`,
		Args: oneName,
	}
	server := addServerFlag(cmd)
	format := cmd.Flags().String("format", "text", "text or json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *format != "text" && *format != "json" {
			return usagef(cmd, "--format %q must be text or json", *format)
		}
		eng, err := server.open(cmd.Context())
		if err != nil {
			return err
		}
		defer eng.Close()
		state, err := eng.Mutex(args[0]).State(cmd.Context())
		if err != nil {
			return err
		}
		if *format == "json" {
			return printStateJSON(cmd.OutOrStdout(), args[0], state)
		}
		printState(cmd.OutOrStdout(), args[0], state)
		return nil
	}
	return cmd
}

func printState(w io.Writer, name string, s engine.State) {
	if !s.Locked {
		fmt.Fprintf(w, "%s: free\n", name)
		return
	}
	lease := "without a lease: it never ends by itself"
	if s.TTL >= 0 {
		lease = fmt.Sprintf("its lease ends in %v unless renewed", s.TTL.Round(time.Millisecond))
	}
	fmt.Fprintf(w, "%s: locked (%s), %s\n", name, s.Mode, lease)
	for _, h := range s.Holders {
		fmt.Fprintf(w, "  holder %s, count %d\n", h.ID, h.Count)
	}
}

func printStateJSON(w io.Writer, name string, s engine.State) error {
	type holder struct {
		ID    string `json:"id"`
		Count int    `json:"count"`
	}
	state := struct {
		Name    string   `json:"name"`
		Locked  bool     `json:"locked"`
		Mode    string   `json:"mode"`
		TTL     *int64   `json:"ttl_ms"`
		Holders []holder `json:"holders"`
	}{Name: name, Locked: s.Locked, Mode: s.Mode, Holders: []holder{}}
	if ms := s.TTL.Milliseconds(); s.TTL >= 0 {
		state.TTL = &ms
	}
	for _, h := range s.Holders {
		state.Holders = append(state.Holders, holder(h))
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(state)
}
