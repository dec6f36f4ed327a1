package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/exit"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/target"
	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/demo"
)

func newDemoCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show processes that contend for a lock",
		Long: `demo starts several processes that all add to one counter. Each takes a lock, reads the
counter, waits a moment and writes it back. One is killed while it holds the lock, and
the others go on when its lease ends. No update may be lost. Then they do the same
without the lock. This time updates must be lost, else the demo fails: it would not
notice a lock that does not work.

It runs on an embedded server, unless --addr names another one. There it uses two keys
that begin with pawl-demo: and removes them afterwards. After a minute it is given up.`,
		Example: `  pawl demo
  pawl demo --workers 8 --increments 100
  pawl demo --addr redis://127.0.0.1:6379`,
		Args: noArgs,
	}
	server := target.AddFlag(cmd)
	cmd.Flags().Lookup("addr").Usage = "`URL` of the server, without a password (default: an embedded server)"
	cfg := demo.Config{Screen: demo.NewScreen(os.Stdout, term.IsTerminal(int(os.Stdout.Fd())))}
	cmd.Flags().IntVar(&cfg.Workers, "workers", 4, "number of processes, at least 3")
	cmd.Flags().IntVar(&cfg.Increments, "increments", 50, "increments of each process")
	cmd.Flags().DurationVar(&cfg.Lease, "lease", 2*time.Second, "lease of the lock, at most 30s; the lock of the killed process ends with it")
	cmd.Flags().BoolVar(&cfg.WithoutLock, "without-lock", false, "leave the lock out of the first round: the demo must fail")
	_ = cmd.Flags().MarkHidden("without-lock")
	profile := cmd.Flags().String("profile", "", "write profiles of every process into `DIR`")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if cfg.Workers < 3 || cfg.Increments < 2 {
			return exit.Usagef(cmd, "--workers must be at least 3, and --increments at least 2")
		}
		if cfg.Lease <= 0 || cfg.Lease > demo.MaxLease {
			return exit.Usagef(cmd, "--lease %v must be positive, and at most %v", cfg.Lease, demo.MaxLease)
		}
		switch {
		case server.Given():
			if _, err := server.Config(); err != nil {
				return err
			}
			cfg.URL, cfg.Parse = server.URL(), server.Parse
		case server.Access.Given():
			return exit.Usagef(cmd, "the embedded server has no TLS and no password: name another one with --addr")
		}
		ctx, stop := exit.UntilSignal(cmd.Context())
		defer stop()
		// Caught, so that a reader that went away, as head does, is an error of the screen and the
		// demo cleans up. Not heeded: a connection that ended while it was written raises it too.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
		cfg.Worker = func(ctx context.Context, w demo.WorkerConfig) *exec.Cmd {
			return workerCommand(ctx, w, server, *profile)
		}
		err = profiled(*profile, func() error { return demo.Run(ctx, cfg) })
		var worker *exec.ExitError // it has said why
		switch {
		case errors.Is(err, demo.ErrOutput) && errors.Is(err, syscall.EPIPE):
			return &exit.SignalError{Signal: syscall.SIGPIPE}
		case errors.Is(err, engine.ErrUnavailable):
			return fmt.Errorf("%w; %s", err, server.WayOut(err))
		case errors.As(err, &worker) && slices.Contains([]int{exit.Usage, exit.Server}, worker.ExitCode()):
			return &exit.Error{Code: worker.ExitCode(), Err: err}
		}
		return err
	}
	return cmd
}

// workerCommand runs this program again, as a worker.
func workerCommand(ctx context.Context, w demo.WorkerConfig, server *target.Flag, profile string) *exec.Cmd {
	args := []string{"demo-worker", "--counter", w.Key, "--increments", strconv.Itoa(w.Increments), "--lease", w.Lease.String()}
	if w.Unlocked {
		args = append(args, "--without-lock")
	}
	if w.Stay {
		args = append(args, "--stay")
	}
	if profile != "" && !w.Stay { // a worker that is killed writes none
		args = append(args, "--profile", filepath.Join(profile, "worker-"+strconv.Itoa(w.Number)))
	}
	return selfCommand(ctx, w.URL, server, args...)
}

// selfCommand runs this program again, on the server of url with the access of server's flags. The
// URL may have a password, so the arguments do not have it.
func selfCommand(ctx context.Context, url string, server *target.Flag, args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	cmd := exec.CommandContext(ctx, self, append(args, server.Access.Args()...)...)
	cmd.Env = append(os.Environ(), target.URLEnv+"="+url)
	if !server.Given() { // one that was started here has none
		cmd.Env = append(cmd.Env, target.PasswordEnv+"=")
	}
	cmd.Stderr = os.Stderr
	return cmd
}

func newDemoWorkerCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "demo-worker", Hidden: true, Args: noArgs}
	var w demo.WorkerConfig
	server := target.AddFlag(cmd)
	cmd.Flags().StringVar(&w.Key, "counter", "", "")
	cmd.Flags().IntVar(&w.Increments, "increments", 0, "")
	cmd.Flags().DurationVar(&w.Lease, "lease", 0, "")
	cmd.Flags().BoolVar(&w.Unlocked, "without-lock", false, "")
	cmd.Flags().BoolVar(&w.Stay, "stay", false, "")
	profile := cmd.Flags().String("profile", "", "")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		signal.Ignore(exit.EndSignals...) // Ctrl-C reaches the whole group; the parent ends its workers
		w.URL, w.Parse = server.URL(), server.Parse
		return profiled(*profile, func() error { return demo.Work(cmd.Context(), w, os.Stdin, os.Stdout) })
	}
	return cmd
}
