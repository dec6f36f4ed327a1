package main

import (
	"github.com/spf13/cobra"

	"github.com/pawl-lock/pawl/bench"
)

// choices are the values of flags that have few.
var choices = map[string][]string{
	"format":  {"text", "json"},
	"on-lost": {"term", "ignore"},
	"finish":  {bench.Serve, bench.Cancel, bench.Abandon},
}

// addCompletion says what a shell completes beyond the names of commands and flags.
func addCompletion(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		for flag, values := range choices {
			if cmd.Flags().Lookup(flag) != nil {
				// It fails only for a flag that is not there, or comes twice.
				_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
			}
		}
		switch cmd.Name() {
		case "bench":
			cmd.ValidArgsFunction = firstOf(bench.Scenarios)
		case "exec":
			cmd.ValidArgsFunction = completeExec
		default:
			cmd.ValidArgsFunction = cobra.NoFileCompletions // names of locks, or nothing
		}
	}
}

// firstOf completes the first argument, and no other.
func firstOf(values []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return values, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeExec leaves the command, which comes after the name of the lock, to the shell.
func completeExec(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveDefault
}
