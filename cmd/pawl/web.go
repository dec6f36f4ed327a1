package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/exit"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/target"
	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/web"
)

// webFlags are those of pawl web.
type webFlags struct {
	listen      string
	hosts       []string
	every       time.Duration
	expose      bool
	allowUnlock bool
}

func newWebCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "web [PATTERN]",
		Short: "Show locks, holders and waiters on a page",
		Long: `web serves a page that shows the locks whose names match the pattern (by default all), who
holds them, since when, what is left of the lease, and who waits, as it changes. While a page is
open, it lists the locks once in a period (--every). While none is open, it asks nothing.

The page asks for no password. So web listens on this machine only, unless --expose says that
everybody who reaches the address may see the names of all locks. It answers requests for the
host it listens on, for localhost, and for each --host, and refuses others: a site on the
internet could use a name of its own that leads to this machine.

With --allow-unlock the page can take a lock away from its holder, after a question. Each
time is logged.`,
		Example: `  pawl web
  pawl web 'orders:*' --allow-unlock
  pawl web --listen 10.0.0.5:7390 --expose --host locks.example`,
	}
	var f webFlags
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return exit.Usagef(cmd, "unexpected argument %q: give one pattern (quote it)", args[1])
		}
		return f.check(cmd)
	}
	server := target.AddFlag(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", "127.0.0.1:7390", "`HOST:PORT` to listen on; port 0 picks a free one")
	flags.StringArrayVar(&f.hosts, "host", nil, "another `HOST` name under which browsers may open the page (may be given several times)")
	flags.DurationVar(&f.every, "every", time.Second, "how long from one look at all locks to the next")
	flags.BoolVar(&f.expose, "expose", false, "allow an address that other machines can reach")
	flags.BoolVar(&f.allowUnlock, "allow-unlock", false, "let the page take locks away from their holders")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, err := server.Config()
		if err != nil {
			return err
		}
		cfg.Logger = newReports(func(format string, args ...any) { fmt.Fprintf(cmd.ErrOrStderr(), "pawl: "+format+"\n", args...) }, isTerminal(cmd.ErrOrStderr()))
		eng, err := server.Connect(cmd.Context(), cfg, target.Patience{})
		if err != nil {
			return err
		}
		defer eng.Close()
		return serveWeb(cmd, f, append(args, "*")[0], eng)
	}
	return cmd
}

// check is what is wrong before anything is connected.
func (f *webFlags) check(cmd *cobra.Command) error {
	host, _, err := net.SplitHostPort(f.listen)
	switch {
	case err != nil:
		return exit.Usagef(cmd, "--listen %q must be HOST:PORT", f.listen)
	case f.every < 100*time.Millisecond:
		return exit.Usagef(cmd, "--every %v is too short: 100ms is the shortest", f.every)
	case !web.Loopback(f.listen) && !f.expose:
		return exit.Usagef(cmd, "other machines can reach %q, and the page asks for no password: whoever reaches it sees the names of all locks (with --allow-unlock, takes them away); listen on 127.0.0.1, or add --expose if that is what you want", f.listen)
	}
	if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsUnspecified()) {
		f.hosts = append(f.hosts, host)
	}
	return nil
}

func serveWeb(cmd *cobra.Command, f webFlags, pattern string, eng *engine.Engine) error {
	ctx, stop := exit.UntilSignal(cmd.Context())
	defer stop()
	cfg := web.Config{Locks: eng, Pattern: pattern, Every: f.every, Hosts: f.hosts, Log: slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))}
	if f.allowUnlock {
		cfg.Unlock = func(ctx context.Context, name, holder string) (int, error) {
			return unlockFrom(ctx, eng, name, holder)
		}
	}
	l, err := net.Listen("tcp", f.listen)
	if err != nil {
		return &exit.Error{Code: exit.Server, Err: fmt.Errorf("cannot listen on %q: %w; choose another address with --listen", f.listen, err)}
	}
	page := web.New(cfg)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		page.Run(ctx)
	}()
	server := &http.Server{Handler: page, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 256 << 10}
	go func() {
		<-ctx.Done()
		last, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = server.Shutdown(last) // an unlock that has begun ends
		_ = server.Close()
	}()
	fmt.Fprintf(cmd.OutOrStdout(), "open http://%s/ in a browser; end with Ctrl-C\n", l.Addr())
	if err = server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	<-ended
	return nil
}

// unlockFrom takes a lock away from one holder, as pawl unlock --if-holder does.
func unlockFrom(ctx context.Context, eng *engine.Engine, name, holder string) (removed int, err error) {
	s, err := eng.Inspect(ctx, name)
	if err != nil {
		return 0, err
	}
	if removed, err = forceUnlock(ctx, eng, s, holder); err != nil || removed == 0 {
		return removed, err
	}
	return removed, wakeQueue(ctx, eng, s)
}
