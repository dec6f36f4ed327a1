package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pawl-lock/pawl/engine"
)

func newUnlockCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "unlock --force NAME",
		Short: "Take a lock away from its holder",
		Long: `unlock removes a lock, whoever holds it. The holder is told at its next renewal
and may go on working until then, while somebody else holds the lock already: be
sure that it is dead, or that this does no harm. A dead holder's lock also ends by
itself, with its lease.

With --if-holder only that holder's lock is removed, and not the one of somebody
who came in since you looked; "pawl status" shows the id.

The exit code is 1 if there was nothing to remove.`,
		Example: `  pawl status nightly-report
  pawl unlock --force nightly-report --if-holder 5e0c...:1234`,
		Args: oneName,
	}
	server := addServerFlag(cmd)
	force := cmd.Flags().Bool("force", false, "required: yes, take it away")
	holder := cmd.Flags().String("if-holder", "", "only if it is held by `ID`, as status shows it")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !*force {
			return usagef(cmd, "unlock takes the lock away from whoever holds it, who may go on working: if that is what you want, add --force")
		}
		var opts []engine.ForceOption
		if cmd.Flags().Changed("if-holder") {
			if *holder == "" {
				return usagef(cmd, "--if-holder is empty: give the id that \"pawl status\" shows")
			}
			opts = append(opts, engine.IfHolder(*holder))
		}
		eng, err := server.open(cmd.Context())
		if err != nil {
			return err
		}
		defer eng.Close()
		removed, err := eng.Mutex(args[0]).ForceUnlock(cmd.Context(), opts...)
		switch {
		case err != nil:
			return err
		case removed:
			fmt.Fprintf(cmd.OutOrStdout(), "%s: removed\n", args[0])
			return nil
		case *holder != "":
			return fmt.Errorf("%s is not held by %s (any more): nothing was removed", args[0], *holder)
		}
		return fmt.Errorf("%s is free: there was nothing to remove", args[0])
	}
	return cmd
}
