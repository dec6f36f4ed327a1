package fifo

import "github.com/pawl-lock/pawl/resp/internal/request"

// Backlog holds what waits for room on one connection, or for the next group of a durable
// one, in the order in which it is let in.
type Backlog[T any] struct{ sooner, later Ring[T] }

// Len returns how many wait.
func (b *Backlog[T]) Len() int { return b.sooner.Len() + b.later.Len() }

// Push adds one behind all of its rank.
func (b *Backlog[T]) Push(e T, rank request.Rank) {
	if rank == request.Sooner {
		b.sooner.Push(e)
	} else {
		b.later.Push(e)
	}
}

// Pop removes the next: the oldest of the rank Sooner, or else of the others.
func (b *Backlog[T]) Pop() T {
	if b.sooner.Len() > 0 {
		return b.sooner.Pop()
	}
	return b.later.Pop()
}

// Shrink gives grown arrays back, if they are empty.
func (b *Backlog[T]) Shrink() {
	b.sooner.Shrink()
	b.later.Shrink()
}

// Room returns how many there is room for, in both.
func (b *Backlog[T]) Room() int { return b.sooner.Room() + b.later.Room() }
