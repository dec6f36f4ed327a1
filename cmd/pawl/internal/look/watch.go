package look

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/exit"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/target"
	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/lockjson"
)

// mostWatched bounds the locks that are compared with the look before, by the bytes that they take: each its name and
// bytesWatched.
const (
	mostWatched  = 64 << 20
	bytesWatched = 600
)

func (t Terminal) watch() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "watch [NAME | PATTERN]",
		Short: "Show locks as they change",
		Long: `watch shows what "pawl inspect" says of a name, or what "pawl ls" says of a pattern, again and
again. Without an argument it shows all locks that are held.

On a terminal it fills the screen, with the locks that have most waiters first; q ends it. Elsewhere it
prints a JSON object, as inspect and ls do, for each lock that has come or has another holder, waiter
or count, and {"name": NAME, "gone": true} for one that is not held any more.`,
		Example: `  pawl watch 'orders:*'
  pawl watch orders:42 --interval 200ms`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return exit.Usagef(cmd, "unexpected argument %q: give one name or pattern, in quotes", args[1])
			}
			return nil
		},
	}
	server, out := target.AddFlag(cmd), t.addOutput(cmd)
	interval := cmd.Flags().Duration("interval", time.Second, "how often to look, at least 100ms")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		text, err := out.text(cmd)
		switch {
		case err != nil:
			return err
		case *interval < 100*time.Millisecond:
			return exit.Usagef(cmd, "--interval %v must be at least 100ms", *interval)
		}
		eng, err := t.connect(cmd, server)
		if err != nil {
			return err
		}
		defer eng.Close()
		w := &watcher{eng: eng, pattern: patternOf(args)}
		if text && t.Is(cmd.OutOrStdout()) {
			return w.screen(cmd, *interval)
		}
		return w.lines(cmd.Context(), cmd.OutOrStdout(), *interval)
	}
	return cmd
}

// watcher looks at the same locks again and again.
type watcher struct {
	eng     *engine.Engine
	pattern string
}

// one is the name that is watched, if it is one.
func (w *watcher) one() (name string, ok bool) {
	var b []byte
	for i := 0; i < len(w.pattern); i++ {
		switch w.pattern[i] {
		case '*', '?', '[':
			return "", false
		case '\\':
			if i+1 < len(w.pattern) {
				i++
			}
		}
		b = append(b, w.pattern[i])
	}
	return string(b), true
}

// each visits the locks as they are now.
func (w *watcher) each(ctx context.Context, visit func(*engine.LockInfo)) error {
	if name, ok := w.one(); ok {
		info, err := w.eng.Inspect(ctx, name)
		if err == nil {
			visit(info)
		}
		return err
	}
	for info, err := range w.eng.List(ctx, w.pattern) {
		if err != nil {
			return err
		}
		visit(info)
	}
	return nil
}

// lines prints what changes until ctx ends.
func (w *watcher) lines(ctx context.Context, out io.Writer, interval time.Duration) error {
	before := make(map[string]uint64)
	seed := maphash.MakeSeed()
	for {
		now := make(map[string]uint64, len(before))
		var text bytes.Buffer
		size := 0
		err := w.each(ctx, func(i *engine.LockInfo) {
			if size += len(i.Name) + bytesWatched; size > mostWatched {
				return
			}
			now[i.Name] = maphash.Bytes(seed, signature(i))
			if was, ok := before[i.Name]; !ok || was != now[i.Name] {
				_ = printJSON(&text, jsonOf(i))
			}
		})
		if ctx.Err() != nil {
			return nil
		}
		switch {
		case err != nil:
			return err
		case size > mostWatched: // which have gone cannot be said
			return errors.New("there are too many locks to compare: watch fewer of them, with a pattern")
		}
		for name := range before {
			if _, is := now[name]; !is {
				_ = printJSON(&text, goneJSON{Name: name, NameBytes: lockjson.NotText(name), Gone: true})
			}
		}
		if _, err := out.Write(text.Bytes()); err != nil {
			return err
		}
		before = now
		select {
		case <-time.After(interval):
		case <-ctx.Done():
			return nil
		}
	}
}

type goneJSON struct {
	Name      string `json:"name"`
	NameBytes []byte `json:"name_base64,omitempty"`
	Gone      bool   `json:"gone"`
}

// signature is what makes two looks at a lock differ: its holders and how many wait.
func signature(i *engine.LockInfo) []byte {
	b := fmt.Appendf(nil, "%q %d %d %d %d %d", i.Kind, i.Waiting, i.Queue, i.Available, i.Count, i.Silent)
	var ids []string
	for _, h := range i.Holders {
		ids = append(ids, fmt.Sprintf("%q %d", h.ID, h.Count))
	}
	slices.Sort(ids)
	return fmt.Appendf(b, "%q", ids)
}

// frame is one look, for the screen: its rows, with most waiters first.
func (w *watcher) frame(ctx context.Context, most int) (rows []row, total int, text string, err error) {
	now := time.Now()
	type ranked struct {
		row
		waiting int
		since   time.Time
	}
	var all []ranked
	trim := func() {
		slices.SortStableFunc(all, func(a, b ranked) int {
			if a.since.IsZero() != b.since.IsZero() { // those whose age is not known come last
				return cmp.Or(cmp.Compare(b.waiting, a.waiting), boolCompare(a.since.IsZero(), b.since.IsZero()))
			}
			return cmp.Or(cmp.Compare(b.waiting, a.waiting), a.since.Compare(b.since), cmp.Compare(a.name, b.name))
		})
		all = all[:min(len(all), most)]
	}
	err = w.each(ctx, func(i *engine.LockInfo) {
		if _, one := w.one(); one {
			text = textOf(i, now)
			return
		}
		total++
		r := ranked{row: rowOf(i, now), waiting: i.Waiting}
		if len(i.Holders) > 0 {
			r.since = earliest(i.Holders[0].Uses)
		}
		if all = append(all, r); len(all) >= 4*most {
			trim()
		}
	})
	trim()
	for _, r := range all {
		rows = append(rows, r.row)
	}
	return rows, total, text, err
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
