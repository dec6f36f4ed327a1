package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/exit"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/target"
	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/execlock"
	"github.com/pawl-lock/pawl/resp"
)

// execFlags are the flags of exec.
type execFlags struct {
	server                        *target.Flag
	quorum, and                   []string
	kind                          string
	permits                       int
	wait, lease, maxHold, minHold time.Duration
	onLost                        string
	grace                         time.Duration
	conflictCode                  int
}

func newExecCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "exec NAME [flags] -- COMMAND [ARG...]",
		Short: "Run a command while a lock is held",
		Long: `exec waits for the lock NAME, runs the command, and releases the lock when the
command has ended. Meanwhile the lock is renewed: it lasts as long as the command
runs. If this machine dies, the lock ends with its lease (30s, or ?lease= in the URL).

With --wait a server that is not up yet is waited for, too, and so is whatever else may pass.
Without it, a server that refuses connections is not waited for (exit code 69), and one that
is silent, loading or being replaced for about 5s (?dial_timeout= in the URL). Once pawl waits
for the lock, an outage does not end the waiting. Giving up takes up to a second, and with ?replicas=
in the URL up to ?ack_timeout= more: what the server grants meanwhile is given back.

With --quorum for each of several independent servers, the lock is held on a majority of
them, and survives the loss of the others (engine.RedLock says what that
promises). $PAWL_PASSWORD is for all of them. At the start a majority must answer. Of
several that try at the same moment perhaps nobody gets a majority: use --wait 1s, not 0.

Further locks are named with --and. They are taken as one, all of them or none: while one is
held by somebody else none of the others is kept. So two commands that want the same locks never block each
other for good, no matter in which order they name them. In a cluster the names may be
on any nodes.

--kind says what NAME is, to all who use it. A fair lock goes to processes in the order in
which they came (of several names none is promised). With fenced the command finds the
fencing token of its hold in $PAWL_TOKEN: a number that is higher than those of all holds
before it. read and write are the halves of a read-write lock: many read, or one writes.
With semaphore the command has one of several permits, each with a lease, so it comes back
if this machine dies (engine.PermitSemaphore; an engine.Semaphore has permits without a
lease, and exec takes none of those). --permits says how many there are, if nobody has
said so before.

The command finds the lock's name in $PAWL_LOCK_NAME: of several locks, one name on each
line. pawl passes SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 on to the command
and to what it has started (its process group). At a terminal the command behaves as it
does without pawl: it may read what you type, Ctrl-C ends it and the script around it,
Ctrl-Z suspends the job. (It comes to the foreground when it first reads from the terminal
or sets its modes. Until then scp and git, which check for that, show no progress.) While
a job is suspended its lock is not renewed. If the lock is lost when the job is resumed,
the command gets SIGTERM before it goes on. (pawl cannot catch SIGSTOP: send that to the
command instead of pawl.)

If the lock is lost (the server was away for too long, or somebody removed the lock),
the group gets SIGTERM, and SIGKILL after --grace. On Linux other groups that the command
has made in its session, such as what timeout runs, get SIGTERM once the command has ended
itself, and are killed with it. With --lease the lock is not renewed: its end is noticed in
time, but that somebody removed it only when the command has ended. If pawl itself is killed,
the command is killed too (on Linux only), but not what the command has started.

When the command has ended, pawl ends within about a second, even if the server does
not answer. The lock then ends with its lease.

Exit codes: the command's own, or 128+n if signal n ended it; 64 wrong usage, 69 server
cannot be reached or refuses, 75 lock not acquired (or --conflict-exit-code), 76 lock
lost (not with --on-lost ignore), 126 command not executable, 127 command not found. If
SIGINT or SIGQUIT ended the command, pawl ends by the same signal.`,
		Example: `  # one of many machines makes the report; the others do nothing
  pawl exec nightly-report --wait 0 --min-hold 5s --conflict-exit-code 0 -- report --all

  # wait for at most a minute, stop after at most an hour
  pawl exec deploy --wait 1m --max-hold 1h -- ./deploy.sh production

  # two locks, or none
  pawl exec stock-7 --and stock-9 --wait 10s -- ./transfer.sh 7 9

  # three at a time, on all machines together
  pawl exec encoders --kind semaphore --permits 3 -- ./encode.sh film.mov

  # a database that compares the numbers refuses what a paused holder writes
  pawl exec ledger --kind fenced -- sh -c './post.sh --token "$PAWL_TOKEN"'

  # on a majority of three servers
  pawl exec deploy --quorum redis://10.0.0.1 --quorum redis://10.0.0.2 --quorum redis://10.0.0.3 -- ./deploy.sh

  # a shell command
  pawl exec backup -- sh -c 'dump | upload'`,
	}
	f := &execFlags{server: target.AddFlag(cmd)}
	flags := cmd.Flags()
	flags.StringArrayVar(&f.and, "and", nil, "another `NAME` to hold at the same time: all locks are taken, or none")
	flags.StringArrayVar(&f.quorum, "quorum", nil, "`URL` of one of several independent servers, given once for each: a majority of them must grant the lock")
	flags.StringVar(&f.kind, "kind", string(execlock.Mutex), "what NAME is: "+oneOf(execlock.Kinds()))
	flags.IntVar(&f.permits, "permits", 0, "how many permits the semaphore has, if nobody has said so before: a `number`")
	flags.DurationVar(&f.wait, "wait", 0, "wait at most this `time` for the lock, connecting included; 0s: try once (default: wait as long as it takes)")
	flags.DurationVar(&f.lease, "lease", 0, "hold the lock for a fixed `time`, not renewed")
	flags.DurationVar(&f.maxHold, "max-hold", 0, "renew the lock for at most this `time`; then it is lost")
	flags.DurationVar(&f.minHold, "min-hold", 0, "keep the lock taken for at least this `time`, even if the command ends sooner")
	flags.StringVar(&f.onLost, "on-lost", "term", "when the lock is lost: term ends the command, ignore lets it go on")
	flags.DurationVar(&f.grace, "grace", 10*time.Second, "`time` from SIGTERM to SIGKILL when the lock is lost")
	flags.IntVar(&f.conflictCode, "conflict-exit-code", exit.NotAcquired, "exit `code` if somebody else holds the lock; with 0 that is not printed")
	cmd.Args = f.commandAfterName
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return flagError(cmd, err, whereTheCommandIs(cmd, err)) })
	cmd.RunE = f.run
	return cmd
}

// commandAfterName is the Args of exec: a name, two dashes, a command.
func (f *execFlags) commandAfterName(cmd *cobra.Command, args []string) error {
	dash := cmd.ArgsLenAtDash()
	switch {
	case len(args) == 0 || dash == 0 || args[0] == "" || slices.Contains(f.and, ""):
		return exit.Usagef(cmd, "the name of the lock is missing")
	case dash < 0 && len(args) == 1, dash == len(args):
		return exit.Usagef(cmd, "the command is missing: write it after two dashes, as in pawl exec %s -- command", shellWords(args[:1]))
	case dash < 0:
		return exit.Usagef(cmd, "unexpected argument %q: write the command after the name and two dashes, as in pawl exec %s", args[1], dashed(args))
	case dash > 1:
		return exit.Usagef(cmd, "unexpected argument %q before the two dashes: if the command begins there, write pawl exec %s; further locks are named with --and, as in pawl exec %s -- %s",
			args[1], dashed(slices.Insert(slices.Clone(args), dash, "--")), shellWords(slices.Concat(args[:1], interspersed("--and", args[1:dash]))), shellWords(args[dash:]))
	case len(strings.Join(f.names(args), "\n")) > execlock.MaxNames:
		return exit.Usagef(cmd, "the names have more than the %d bytes that $%s can have", execlock.MaxNames, execlock.NameEnv)
	}
	return nil
}

// names are those of all locks.
func (f *execFlags) names(args []string) []string { return append(args[:1:1], f.and...) }

// several reports whether there is more than one.
func (f *execFlags) several() bool { return len(f.and) > 0 }

func (f *execFlags) check(cmd *cobra.Command) error {
	switch {
	case len(f.quorum) == 1:
		return exit.Usagef(cmd, "one --quorum is no majority: give it once for each of at least three servers, or use --addr")
	case len(f.quorum) > 0 && f.server.Given():
		return exit.Usagef(cmd, "--addr and --quorum cannot be combined")
	case len(f.quorum) > 0 && f.several():
		return exit.Usagef(cmd, "--quorum goes with one name")
	case len(f.quorum) > 0 && cmd.Flags().Changed("min-hold"):
		return exit.Usagef(cmd, "--min-hold and --quorum cannot be combined: a try that has no majority is given back")
	case cmd.Flags().Changed("min-hold") && f.several():
		return exit.Usagef(cmd, "--min-hold goes with one name: of several locks each is given back while another is held")
	case !execlock.Kind(f.kind).Known():
		return exit.Usagef(cmd, "--kind %q must be %s", f.kind, oneOf(execlock.Kinds()))
	case f.onLost != "term" && f.onLost != "ignore":
		return exit.Usagef(cmd, "--on-lost %q must be term or ignore", f.onLost)
	case f.wait < 0:
		return exit.Usagef(cmd, "--wait %v must not be negative: leave it out to wait as long as it takes", f.wait)
	case f.grace < 0:
		return exit.Usagef(cmd, "--grace %v must not be negative", f.grace)
	case f.conflictCode < 0 || f.conflictCode > 255:
		return exit.Usagef(cmd, "--conflict-exit-code %d must be between 0 and 255", f.conflictCode)
	case cmd.Flags().Changed("lease") && f.lease <= 0:
		return exit.Usagef(cmd, "--lease %v must be positive", f.lease)
	case cmd.Flags().Changed("max-hold") && f.maxHold <= 0:
		return exit.Usagef(cmd, "--max-hold %v must be positive", f.maxHold)
	case cmd.Flags().Changed("min-hold") && f.minHold <= 0:
		return exit.Usagef(cmd, "--min-hold %v must be positive", f.minHold)
	case cmd.Flags().Changed("lease") && cmd.Flags().Changed("max-hold"):
		return exit.Usagef(cmd, "--lease and --max-hold cannot be combined: a fixed lease already bounds the hold")
	}
	return f.checkKind(cmd)
}

// config translates for execlock.
func (f *execFlags) config(cmd *cobra.Command, args []string) execlock.Config {
	dash := cmd.ArgsLenAtDash()
	cfg := execlock.Config{
		Names: f.names(args), Kind: execlock.Kind(f.kind), Permits: f.permits, Wait: -1, KeepRunning: f.onLost == "ignore", Grace: f.grace, Command: args[dash:],
		SayWhoHolds: isTerminal(cmd.ErrOrStderr()),
	}
	for name, option := range map[string]engine.Option{
		"lease": engine.Lease(f.lease), "max-hold": engine.MaxHold(f.maxHold), "min-hold": engine.MinHold(f.minHold),
	} {
		if cmd.Flags().Changed(name) {
			cfg.Options = append(cfg.Options, option)
		}
	}
	return cfg
}

// lastWords is how long the last lines may take to be written. If they
// cannot be read by then (a full pipe, a terminal stopped by Ctrl-S), there is the exit code.
const lastWords = 500 * time.Millisecond

func (f *execFlags) run(cmd *cobra.Command, args []string) error {
	if err := f.check(cmd); err != nil {
		return err
	}
	cfg := f.config(cmd, args)
	if _, err := exec.LookPath(cfg.Command[0]); err != nil {
		if len(cfg.Command) == 1 && strings.ContainsAny(cfg.Command[0], " \t\n|&;<>") {
			err = fmt.Errorf("%w; for a shell command write -- sh -c 'COMMAND'", err)
		}
		return &exit.Error{Code: startCode(err), Err: fmt.Errorf("cannot run the command: %w", err)}
	}
	notices := execlock.NewNotices(cmd.ErrOrStderr())
	cfg.Say = notices.Say
	engines, err := f.connect(cmd, &cfg)
	if err != nil {
		notices.Close(lastWords)
		return err
	}
	end, err := execlock.Run(cmd.Context(), engines, cfg)
	err = f.outcome(end, err)
	if text := exit.Text(err); text != "" {
		notices.Say("%s", text)
	}
	notices.Close(lastWords)
	if err == nil {
		return nil
	}
	return &exit.Error{Code: exit.Code(err), Signal: exit.DeathSignal(err)} // it is said
}

// connect opens the engines. That counts as waiting for the lock; but a short wait is
// not too short to connect.
func (f *execFlags) connect(cmd *cobra.Command, cfg *execlock.Config) ([]*engine.Engine, error) {
	servers, err := f.servers()
	if err != nil {
		return nil, err
	}
	logger := newReports(cfg.Say, cfg.SayWhoHolds)
	for i, s := range servers {
		servers[i].Logger = logger
		if s.Replicas != 0 { // the default, or less with a short lease
			cfg.ReplicasHave = max(cfg.ReplicasHave, cmp.Or(s.AckTimeout, time.Second))
		}
	}
	patience := target.Patience{Say: cfg.Say}
	if cmd.Flags().Changed("wait") && f.wait > 0 {
		patience.AtMost, patience.Wait = max(f.wait, time.Second), true
	}
	ctx, stop := exit.UntilSignal(cmd.Context()) // of which PID 1 would not die
	began := time.Now()
	engines, err := f.server.ConnectMost(resp.ForNames(ctx, cfg.Names...), servers, patience)
	cfg.Signals = execlock.Catch() // before the others are let go
	stop()
	if signalled := context.Cause(ctx); errors.As(signalled, new(*exit.SignalError)) {
		for _, e := range engines {
			_ = e.Close() // it has nothing to give back
		}
		return nil, signalled
	}
	if cmd.Flags().Changed("wait") {
		cfg.Wait = max(f.wait-time.Since(began), min(f.wait, time.Second))
	}
	return engines, err
}

// servers are those of --quorum, or the one.
func (f *execFlags) servers() (all []engine.Config, err error) {
	if len(f.quorum) > 0 {
		all, err = f.server.Quorum(f.quorum)
	} else {
		all = make([]engine.Config, 1)
		all[0], err = f.server.Config()
	}
	if err != nil {
		return nil, err
	}
	for i := range all {
		all[i].Service = "pawl exec" // as others see it: pawl inspect
	}
	return all, nil
}

// outcome translates what Run returned.
func (f *execFlags) outcome(end execlock.End, err error) error {
	var signalled *execlock.SignalError
	switch {
	case errors.As(err, &signalled):
		return &exit.SignalError{Signal: signalled.Signal}
	case errors.Is(err, execlock.ErrStart) && errors.Is(err, engine.ErrLost):
		return &exit.Error{Code: exit.Lost, Err: err}
	case errors.Is(err, execlock.ErrStart):
		return &exit.Error{Code: startCode(err), Err: err}
	case errors.Is(err, engine.ErrLost):
		lost := &exit.Error{Code: exit.Lost, Err: fmt.Errorf("%w; the command ended with code %d", err, end.Code)}
		if exit.Interrupts(end.Signal) {
			lost.Code, lost.Signal = end.Code, end.Signal
		}
		return lost
	case errors.Is(err, engine.ErrNoPermits): // nobody else has one
		return err
	case exit.Code(err) == exit.NotAcquired && f.conflictCode == 0:
		return nil // as expected, and cron mails whatever is printed
	case exit.Code(err) == exit.NotAcquired:
		return &exit.Error{Code: f.conflictCode, Err: err}
	case err != nil:
		return err
	case end.Code == 0:
		return nil
	case exit.Interrupts(end.Signal):
		return &exit.Error{Code: end.Code, Signal: end.Signal}
	}
	return &exit.Error{Code: end.Code}
}

// startCode is what shells answer if a command cannot be run.
func startCode(err error) int {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return exit.NotFound
	}
	return exit.NotExecutable
}
