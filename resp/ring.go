package resp

// ring is a FIFO queue of values in one growing array, oldest first. Its zero
// value is empty and owns nothing. Once it has grown it allocates no more.
type ring[T any] struct {
	buf  []T // its length is 0 or a power of two
	head int // index of the oldest
	n    int
}

// ringMin is the first size: more than a few callers have in flight, and less
// than a page.
const ringMin = 64

func (r *ring[T]) len() int { return r.n }

// at returns the i-th oldest; the pointer is valid until the next push.
func (r *ring[T]) at(i int) *T { return &r.buf[(r.head+i)&(len(r.buf)-1)] }

func (r *ring[T]) front() *T { return r.at(0) }

func (r *ring[T]) back() *T { return r.at(r.n - 1) }

func (r *ring[T]) push(v T) {
	if r.n == len(r.buf) {
		r.grow()
	}
	r.n++
	*r.back() = v
}

// pop removes the oldest and clears its place, so that nothing it points to is
// kept alive.
func (r *ring[T]) pop() T {
	p := r.front()
	v := *p
	var zero T
	*p = zero
	r.head = (r.head + 1) & (len(r.buf) - 1)
	r.n--
	return v
}

// unpush removes the newest.
func (r *ring[T]) unpush() {
	var zero T
	*r.back() = zero
	r.n--
}

// shrink gives an empty, grown array back.
func (r *ring[T]) shrink() {
	if r.n == 0 && len(r.buf) > ringMin {
		*r = ring[T]{}
	}
}

func (r *ring[T]) grow() {
	buf := make([]T, max(ringMin, 2*len(r.buf)))
	k := copy(buf, r.buf[r.head:])
	copy(buf[k:], r.buf[:r.head])
	r.buf, r.head = buf, 0
}
