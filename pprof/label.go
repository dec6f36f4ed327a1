package pprof

import (
	"context"
	rpprof "runtime/pprof"
)

// Do runs fn under the label role. Goroutines that fn starts inherit it.
func Do(ctx context.Context, role string, fn func(context.Context)) {
	rpprof.Do(ctx, rpprof.Labels("role", role), fn)
}
