package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/exit"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/target"
	"github.com/pawl-lock/pawl/engine"
)

func newUnlockCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "unlock --force NAME",
		Short: "Take a lock away from its holder",
		Long: `unlock removes a lock, no matter who holds it. The holder is told at its next renewal.
Until then it may go on working while somebody else already holds the lock, so make
sure that the holder is dead, or that this does no harm. The lock of a dead holder
also ends by itself, with its lease.

With --if-holder the lock is removed only if that holder has it, and not if somebody
else got it after you looked. "pawl status" shows the id.

The exit code is 1 if there was nothing to remove.`,
		Example: `  pawl status nightly-report
  pawl unlock --force nightly-report --if-holder 5e0c...:1234`,
		Args: oneName,
	}
	server := target.AddFlag(cmd)
	force := cmd.Flags().Bool("force", false, "required, to confirm that you want to take the lock away")
	holder := cmd.Flags().String("if-holder", "", "remove the lock only if `ID` holds it, as status shows it")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !*force {
			return exit.Usagef(cmd, "unlock takes the lock away from its holder, which may go on working; if that is what you want, add --force")
		}
		var opts []engine.ForceOption
		if cmd.Flags().Changed("if-holder") {
			if *holder == "" {
				return exit.Usagef(cmd, "--if-holder is empty: give the id that \"pawl status\" shows")
			}
			opts = append(opts, engine.IfHolder(*holder))
		}
		eng, err := server.Open(cmd.Context())
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
