package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/pawl-lock/pawl/bench"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/exit"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/look"
	"github.com/pawl-lock/pawl/internal/execlock"
)

// choices are the values of flags that have few.
var choices = map[string][]string{
	"format":  {"text", "json"},
	"kind":    execlock.Kinds(),
	"on-lost": {"term", "ignore"},
	"finish":  {bench.Serve, bench.Cancel, bench.Abandon},
}

// addCompletion says what a shell completes beyond the names of commands and flags.
func addCompletion(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		choices := choices
		if cmd.Name() == "status" {
			choices = map[string][]string{"format": {"text", "json", "jsonl"}}
		}
		if format := cmd.Flags().Lookup("format"); format != nil && format.DefValue == "" {
			choices = map[string][]string{"format": look.Formats}
		}
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
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	strict(root)
}

// strict makes wrong usage of cobra's own commands an error: they print help otherwise, which a
// shell would source.
func strict(root *cobra.Command) {
	if help, _, err := root.Find([]string{"help"}); err == nil {
		help.Args = func(_ *cobra.Command, args []string) error {
			if cmd, rest, err := root.Find(args); err != nil || len(rest) > 0 {
				return exit.Usagef(cmd.Root(), "there is no command %q", strings.Join(args, " "))
			}
			return nil
		}
	}
	completion, _, err := root.Find([]string{"completion"})
	if err != nil {
		return // there is none
	}
	completion.Args = cobra.ArbitraryArgs
	completion.RunE = func(cmd *cobra.Command, _ []string) error {
		return exit.Usagef(cmd, "one shell is needed: bash, zsh, fish or powershell")
	}
	for _, shell := range completion.Commands() {
		shell.Args = noArgs
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
