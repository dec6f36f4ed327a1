// Command peers runs Pawl's benchmark scenarios on other clients, so that their
// figures come from the same machine, the same server and the same loop.
//
// It is a module of its own: what it compares with never becomes a dependency of
// Pawl. The answer is one JSON object with the fields of `pawl bench`.
//
//	go run . --goroutines 64 --duration 5s uncontended
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/pawl-lock/pawl/internal/redistest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout)
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "peers:", err)
	stop()
	os.Exit(exitCode(err))
}

// The exit codes are those of the command pawl.
func exitCode(err error) int {
	switch {
	case errors.Is(err, errUsage):
		return 64
	case errors.Is(err, redistest.ErrNotInstalled):
		return 69
	}
	return 1
}

var errUsage = errors.New("usage: peers [flags] uncontended")

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("peers", flag.ContinueOnError)
	addr := flags.String("addr", "", "URL of the server, redis://host:port or unix:///path; empty: start one")
	peer := flags.String("peer", "rueidis", "client to measure: rueidis (raw EVALSHA of Pawl's scripts)")
	format := flags.String("format", "json", "text or json")
	var cfg runConfig
	flags.IntVar(&cfg.Goroutines, "goroutines", 64, "workers, each with a name of its own")
	flags.DurationVar(&cfg.Duration, "duration", 5*time.Second, "how long to measure")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return errors.Join(errUsage, err)
	}
	switch {
	case flags.NArg() != 1 || flags.Arg(0) != "uncontended":
		return errUsage
	case *peer != "rueidis":
		return fmt.Errorf("%w: no peer %q", errUsage, *peer)
	case *format != "json" && *format != "text":
		return fmt.Errorf("%w: no format %q", errUsage, *format)
	case cfg.Goroutines < 1 || cfg.Duration <= 0:
		return fmt.Errorf("%w: --goroutines and --duration must be positive", errUsage)
	}
	if *addr == "" {
		server, err := redistest.StartProcess(ctx, redistest.Config{})
		if err != nil {
			return err
		}
		defer server.Close()
		*addr = server.URL()
	}
	subject, err := openRueidis(ctx, *addr)
	if err != nil {
		return err
	}
	defer subject.Close()
	result, err := uncontended(ctx, subject, cfg)
	if err != nil {
		return err
	}
	if *format == "text" {
		_, err = fmt.Fprintln(out, result)
		return err
	}
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	return enc.Encode(result)
}
