package topology

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// HedgeDelay is what a server that is asked has before the next one is asked, too.
	HedgeDelay = 300 * time.Millisecond
	// SearchTimeout is how long a search waits for the last ones that it has asked.
	// Connecting goes on behind it: see probes.
	SearchTimeout = time.Second
)

// result is what a server answered, or why it did not.
type result[A any] struct {
	addr   string
	answer A
	err    error
}

var (
	// errNobody is for a search without an address.
	errNobody = errors.New("resp: there is no server to ask; check Config.Addrs")
	// ErrSilent is for a server that has not answered when a search ends.
	ErrSilent = errors.New("no answer yet")
)

// askFirst asks one server after the other, each when the one before has failed or its
// head start is over. The first good answer wins. Without one it ends when all have
// failed, or when the last one has been out for as long as the probes are patient.
func askFirst[A any](ctx context.Context, s *probes, addrs []string, ask func(ctx context.Context, addr string) (A, error)) (A, error) {
	var failed []error
	var responded []string
	good := func(f result[A]) bool { return f.err == nil }
	for _, f := range hedge(ctx, addrs, HedgeDelay, s.timeout, ask, good) {
		if good(f) {
			before := addrs[:slices.Index(addrs, f.addr)]
			silent := slices.DeleteFunc(slices.Clone(before), func(addr string) bool { return slices.Contains(responded, addr) })
			s.slow.note(s.clock.Now(), f.addr, silent)
			return f.answer, nil
		}
		failed, responded = append(failed, f.err), append(responded, f.addr)
	}
	var none A
	if len(failed) == 0 {
		failed = append(failed, errNobody, ctx.Err())
	}
	return none, errors.Join(failed...)
}

// askAll asks all servers at once, and ends when all have answered or failed, or when the
// probes lose patience. Then those that are still out have failed, too.
func askAll[A any](ctx context.Context, s *probes, addrs []string, ask func(ctx context.Context, addr string) (A, error)) []result[A] {
	return hedge(ctx, addrs, 0, s.timeout, ask, func(result[A]) bool { return false })
}

// hedge is a race of questions. Before it returns those that are out are cancelled and
// waited for; their findings stand behind the others. Servers that it has not come to
// are not in the list.
func hedge[A any](ctx context.Context, addrs []string, every, patience time.Duration,
	ask func(ctx context.Context, addr string) (A, error), enough func(result[A]) bool,
) (results []result[A]) {
	ctx, cancel := context.WithCancelCause(ctx)
	answers := make(chan result[A], len(addrs))
	var asking sync.WaitGroup
	defer func() {
		cancel(nil)
		asking.Wait()
		close(answers)
		for f := range answers {
			results = append(results, f)
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	asked := 0
	next := func() {
		addr := addrs[asked]
		asked++
		asking.Go(func() {
			a, err := ask(ctx, addr)
			answers <- result[A]{addr, a, err}
		})
		if asked < len(addrs) {
			timer.Reset(every)
		} else {
			timer.Reset(patience)
		}
	}
	for len(results) < len(addrs) {
		select {
		case f := <-answers:
			results = append(results, f)
			if enough(f) {
				return results
			}
			if asked < len(addrs) {
				next()
			}
		case <-timer.C:
			if asked == len(addrs) {
				cancel(fmt.Errorf("%w, after %v", ErrSilent, patience))
				return results
			}
			next()
		case <-ctx.Done():
			return results
		}
	}
	return results
}
