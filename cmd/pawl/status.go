package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/execlock"
)

func newStatusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status NAME",
		Short: "Show who holds a lock",
		Long: `status asks the server who holds a lock and how long its lease lasts. It changes
nothing. Its exit code is 0 whether the lock is free or held.

A holder whose id ends with a negative number is nobody: the lock was given up, and
--min-hold (or the option MinHold) keeps the lock taken for a while.

With --quiet it prints nothing, and the exit code is the answer: 0 if the lock is
held, 1 if it is free. Any other code comes with an error: the answer is not known.

With --format json the answer is one object: name, locked, mode, ttl_ms (null if
the key has no expiry, 0 for a free lock) and holders, each with id and count.`,
		Example: `  pawl status nightly-report
  pawl status nightly-report --format json | jq .locked
  if pawl status --quiet nightly-report; then echo "it is still being made"; fi`,
		Args: oneName,
	}
	server := addServerFlag(cmd)
	format := cmd.Flags().String("format", "text", "text or json")
	quiet := cmd.Flags().BoolP("quiet", "q", false, "print nothing; exit code 0: held, 1: free")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *format != "text" && *format != "json" {
			return usagef(cmd, "--format %q must be text or json", *format)
		}
		if *quiet && cmd.Flags().Changed("format") {
			return usagef(cmd, "--quiet and --format cannot be combined")
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
		switch {
		case *quiet && !state.Locked:
			return &exitError{code: exitFailed}
		case *quiet:
			return nil
		case *format == "json":
			return printStateJSON(cmd.OutOrStdout(), args[0], state)
		}
		return printState(cmd.OutOrStdout(), args[0], state)
	}
	return cmd
}

func printState(w io.Writer, name string, s engine.State) error {
	if !s.Locked {
		_, err := fmt.Fprintf(w, "%s: free\n", name)
		return err
	}
	lease := "without a lease: it never ends by itself"
	if s.TTL >= 0 {
		lease = fmt.Sprintf("its lease ends in %v unless renewed", s.TTL.Round(time.Millisecond))
	}
	text := fmt.Sprintf("%s: locked (%s), %s\n", name, execlock.Shown(s.Mode), lease)
	for _, h := range s.Holders {
		text += fmt.Sprintf("  holder %s, count %d\n", execlock.Shown(h.ID), h.Count)
	}
	_, err := io.WriteString(w, text)
	return err
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
