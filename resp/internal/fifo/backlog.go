package fifo

import "github.com/pawl-lock/pawl/resp/internal/request"

// Backlog holds what waits for room on one connection, or for the next group of a durable
// one, in the order in which it is let in.
type Backlog[T any] struct{ high, normal Ring[T] }

// Len returns how many wait.
func (b *Backlog[T]) Len() int { return b.high.Len() + b.normal.Len() }

// Push adds one behind all of its priority.
func (b *Backlog[T]) Push(e T, priority request.Priority) {
	if priority == request.PriorityHigh {
		b.high.Push(e)
	} else {
		b.normal.Push(e)
	}
}

// Pop removes the next: the oldest of PriorityHigh, or else of the others.
func (b *Backlog[T]) Pop() T {
	if b.high.Len() > 0 {
		return b.high.Pop()
	}
	return b.normal.Pop()
}

// Shrink gives grown arrays back, if they are empty.
func (b *Backlog[T]) Shrink() {
	b.high.Shrink()
	b.normal.Shrink()
}

// Room returns how many there is room for, in both.
func (b *Backlog[T]) Room() int { return b.high.Room() + b.normal.Room() }
