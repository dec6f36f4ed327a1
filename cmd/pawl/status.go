package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/exit"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/target"
	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/execlock"
)

func newStatusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status NAME...",
		Short: "Show who holds a lock",
		Long: `status asks the server who holds a lock and how long its lease lasts. It changes
nothing. Its exit code is 0 whether the lock is free or held.

A holder whose id ends with a negative number is nobody: the lock was given up, and
--min-hold (or the option MinHold) keeps the lock taken for a while.

With --quiet it prints nothing, and the exit code is the answer: 0 if the lock is
held (of several: if one of them is), 1 if it is free. Any other code comes with an
error: the answer is not known.

With --format json the answer is one object: name, locked, mode, ttl_ms (null if
the key has no expiry, 0 for a free lock) and holders, each with id and count. With
several names it is an array of such objects, in the order of the names.`,
		Example: `  pawl status nightly-report
  pawl status nightly-report --format json | jq .locked
  if pawl status --quiet nightly-report; then echo "it is still being made"; fi`,
		Args: someNames,
	}
	server := target.AddFlag(cmd)
	format := cmd.Flags().String("format", "text", "text or json")
	quiet := cmd.Flags().BoolP("quiet", "q", false, "print nothing; exit code 0: held, 1: free")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *format != "text" && *format != "json" {
			return exit.Usagef(cmd, "--format %q must be text or json", *format)
		}
		if *quiet && cmd.Flags().Changed("format") {
			return exit.Usagef(cmd, "--quiet and --format cannot be combined")
		}
		eng, err := server.Open(cmd.Context())
		if err != nil {
			return err
		}
		defer eng.Close()
		states, err := statesOf(cmd.Context(), eng, args)
		if err != nil {
			return err
		}
		held := func(s lockState) bool { return s.Locked }
		switch {
		case *quiet && !slices.ContainsFunc(states, held):
			return &exit.Error{Code: exit.Failed}
		case *quiet:
			return nil
		case *format == "json":
			return printJSON(cmd.OutOrStdout(), states)
		}
		return printStates(cmd.OutOrStdout(), states)
	}
	return cmd
}

// lockState is the state of one lock.
type lockState struct {
	name string
	engine.State
}

func statesOf(ctx context.Context, eng *engine.Engine, names []string) (states []lockState, err error) {
	for _, name := range names {
		s, err := eng.Mutex(name).State(ctx)
		if err != nil {
			return nil, err
		}
		states = append(states, lockState{name, s})
	}
	return states, nil
}

func printStates(w io.Writer, states []lockState) error {
	text := ""
	for _, s := range states {
		text += s.text()
	}
	_, err := io.WriteString(w, text)
	return err
}

func (s lockState) text() string {
	if !s.Locked {
		return s.name + ": free\n"
	}
	lease := "without a lease: it never ends by itself"
	if s.TTL >= 0 {
		lease = fmt.Sprintf("its lease ends in %v unless renewed", s.TTL.Round(time.Millisecond))
	}
	text := fmt.Sprintf("%s: locked (%s), %s\n", s.name, execlock.Shown(s.Mode), lease)
	for _, h := range s.Holders {
		text += fmt.Sprintf("  holder %s, count %d\n", execlock.Shown(h.ID), h.Count)
	}
	return text
}

// stateJSON is what scripts get.
type stateJSON struct {
	Name    string       `json:"name"`
	Locked  bool         `json:"locked"`
	Mode    string       `json:"mode"`
	TTL     *int64       `json:"ttl_ms"`
	Holders []holderJSON `json:"holders"`
}

type holderJSON struct {
	ID    string `json:"id"`
	Count int    `json:"count"`
}

func (s lockState) json() stateJSON {
	j := stateJSON{Name: s.name, Locked: s.Locked, Mode: s.Mode, Holders: []holderJSON{}}
	if ms := s.TTL.Milliseconds(); s.TTL >= 0 {
		j.TTL = &ms
	}
	for _, h := range s.Holders {
		j.Holders = append(j.Holders, holderJSON(h))
	}
	return j
}

// printJSON prints one object for one name, an array for several.
func printJSON(w io.Writer, states []lockState) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	if len(states) == 1 {
		return enc.Encode(states[0].json())
	}
	var list []stateJSON
	for _, s := range states {
		list = append(list, s.json())
	}
	return enc.Encode(list)
}
