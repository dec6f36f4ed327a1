package fifo

// Ring is a FIFO queue of values in one growing array, oldest first. Its zero
// value is empty and owns nothing. Once it has grown it allocates no more.
type Ring[T any] struct {
	buf  []T // its length is 0 or a power of two
	head int // index of the oldest
	n    int
}

// ringMin is the first size: more than a few callers have in flight, and less
// than a page.
const ringMin = 64

// Len returns how many values it holds.
func (r *Ring[T]) Len() int { return r.n }

// Room returns how many values it has room for.
func (r *Ring[T]) Room() int { return len(r.buf) }

// At returns the i-th oldest; the pointer is valid until the next push.
func (r *Ring[T]) At(i int) *T { return &r.buf[(r.head+i)&(len(r.buf)-1)] }

// Front returns the oldest, as At does.
func (r *Ring[T]) Front() *T { return r.At(0) }

// Back returns the newest, as At does.
func (r *Ring[T]) Back() *T { return r.At(r.n - 1) }

// Push adds a value behind all others.
func (r *Ring[T]) Push(v T) {
	if r.n == len(r.buf) {
		r.grow()
	}
	r.n++
	*r.Back() = v
}

// Pop removes the oldest and clears its place, so that nothing it points to is
// kept alive.
func (r *Ring[T]) Pop() T {
	p := r.Front()
	v := *p
	var zero T
	*p = zero
	r.head = (r.head + 1) & (len(r.buf) - 1)
	r.n--
	return v
}

// Unpush removes the newest.
func (r *Ring[T]) Unpush() {
	var zero T
	*r.Back() = zero
	r.n--
}

// Shrink gives an empty, grown array back.
func (r *Ring[T]) Shrink() {
	if r.n == 0 && len(r.buf) > ringMin {
		*r = Ring[T]{}
	}
}

func (r *Ring[T]) grow() {
	buf := make([]T, max(ringMin, 2*len(r.buf)))
	k := copy(buf, r.buf[r.head:])
	copy(buf[k:], r.buf[:r.head])
	r.buf, r.head = buf, 0
}
