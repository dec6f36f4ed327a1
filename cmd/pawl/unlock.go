package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/exit"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/target"
	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/execlock"
)

func newUnlockCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "unlock --force NAME",
		Short: "Take a lock away from its holder",
		Long: `unlock removes a lock, no matter who holds it. The holder is told at its next renewal; one
with a fixed lease, as of "pawl exec --lease", not before its lease or its work ends. Until
then it may go on working while somebody else already holds the lock, so make sure that the
holder is dead, or that this does no harm. The lock of a dead holder also ends by itself,
with its lease.

It looks what the name is, and wakes the waiters of a lock of that kind. A read-write lock
is taken from all its readers, or from its writer. The queue of a fair lock stays. All
permits of a PermitSemaphore that are taken are given back. Nobody holds the count of a
semaphore or a latch, so there it does nothing.

With --if-holder the lock or the permit is removed only if that holder has it, and not if
somebody else got it after you looked. "pawl status" shows the id.

The exit code is 1 if there was nothing to remove.`,
		Example: `  pawl status nightly-report
  pawl unlock --force nightly-report --if-holder 5e0c...:1234`,
		Args: oneName,
	}
	server := target.AddFlag(cmd)
	force := cmd.Flags().Bool("force", false, "required, to confirm that you want to take the lock away")
	holder := cmd.Flags().String("if-holder", "", "remove only the lock or permit that `ID` holds, as status shows it")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !*force {
			return exit.Usagef(cmd, "unlock takes the lock away from its holder, which may go on working; if that is what you want, add --force")
		}
		if cmd.Flags().Changed("if-holder") && *holder == "" {
			return exit.Usagef(cmd, "--if-holder is empty: give the id that \"pawl status\" shows")
		}
		name := args[0]
		return withServer(cmd, server, args, func(eng *engine.Engine) error {
			s, err := eng.Inspect(cmd.Context(), name)
			if err != nil {
				return err
			}
			removed, err := forceUnlock(cmd.Context(), eng, s, *holder)
			switch {
			case err != nil:
				return err
			case removed > 0 && s.Kind == "permits":
				fmt.Fprintf(cmd.OutOrStdout(), "%s: permits given back: %d\n", execlock.Shown(name), removed)
				return nil
			case removed > 0:
				fmt.Fprintf(cmd.OutOrStdout(), "%s: removed\n", execlock.Shown(name))
				if err := wakeQueue(cmd.Context(), eng, s); err != nil {
					fmt.Fprintf(cmd.ErrOrStderr(), "pawl: if %s is a fair lock, its queue was not told, and goes on when the lease would have ended: %s\n", execlock.Shown(name), execlock.Shown(exit.Text(err)))
				}
				return nil
			}
			return nothingRemoved(s, *holder)
		})
	}
	return cmd
}

// nothingRemoved says why.
func nothingRemoved(s *engine.LockInfo, holder string) error {
	switch {
	case holder != "":
		return fmt.Errorf("%s is not held by %s (any more): nothing was removed", execlock.Shown(s.Name), execlock.Shown(holder))
	case held(s):
		return fmt.Errorf("%s has changed hands, or is free by now: nothing was removed", execlock.Shown(s.Name))
	}
	return fmt.Errorf("%s is free: there was nothing to remove", execlock.Shown(s.Name))
}

// nobody is the id of no holder: an id has a number behind a colon.
const nobody = "nobody"

// forceUnlock takes a lock away as its kind wants it, from that holder or, without one, from all.
// It returns how many locks or permits were.
func forceUnlock(ctx context.Context, eng *engine.Engine, s *engine.LockInfo, holder string) (removed int, err error) {
	var ids []string
	var locks []engine.Mutex
	switch s.Kind {
	case "": // who takes it from now on is not the one that is meant
		return 0, nil
	case "fenced":
		if !s.Locked {
			return 0, nil
		}
		locks = []engine.Mutex{eng.Mutex(s.Name)}
	case "count":
		if s.Hidden != nil {
			return 0, hiddenPermits(s)
		}
		return 0, &exit.Error{Code: exit.Server, Err: fmt.Errorf("%s is a count, of a semaphore or a latch, which nobody holds: there is nothing to take away; services give permits back with AddPermits, and open a latch with CountDown", execlock.Shown(s.Name))}
	case "permits":
		for _, p := range s.Holders {
			if holder == "" || strings.EqualFold(holder, p.ID) {
				ids = append(ids, p.ID)
			}
		}
	case "read-write": // a writer that gets it from its readers, or the other way round, is not the one that is meant
		half := eng.RWMutex(s.Name).Reader()
		if holder == "" && s.Mode == "write" || strings.HasSuffix(holder, ":write") {
			half = eng.RWMutex(s.Name).Writer()
		}
		locks = []engine.Mutex{half}
	case "fair":
		locks = []engine.Mutex{eng.FairMutex(s.Name)}
		if !s.Locked { // whoever is next is woken
			holder = nobody
		}
	default:
		locks = []engine.Mutex{eng.Mutex(s.Name)}
	}
	var opts []engine.ForceOption
	if holder != "" {
		opts = append(opts, engine.IfHolder(holder))
	}
	count := func(done bool, failed error) {
		err = cmp.Or(err, failed)
		if done {
			removed++
		}
	}
	for _, l := range locks {
		count(l.ForceUnlock(ctx, opts...))
	}
	for _, id := range ids {
		count(eng.PermitSemaphore(s.Name).ForceRelease(ctx, id))
	}
	return removed, err
}

// wakeQueue wakes the first of the queue of a lock that looked like any other, and was taken away as
// such, because nobody waited yet when it was looked at. The other kinds are what they looked like.
func wakeQueue(ctx context.Context, eng *engine.Engine, s *engine.LockInfo) error {
	if s.Kind != "mutex" && s.Kind != "fenced" {
		return nil
	}
	if s.QueueHidden != nil || len(s.Holders) == 0 {
		return s.QueueHidden // this user may not see it
	}
	now, err := eng.Inspect(ctx, s.Name)
	if err != nil || now.Queue == 0 {
		return err
	}
	_, err = eng.FairMutex(s.Name).ForceUnlock(ctx, engine.IfHolder(s.Holders[0].ID))
	return err
}
