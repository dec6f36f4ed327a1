package waitq

// List is a FIFO whose elements can leave from the middle in constant time. The
// zero value is empty, and so is a nil *List. It is not safe for concurrent use.
type List[T any] struct {
	front, back *Elem[T]
	n           int
}

// Elem is an element's place in a List; embed it in what is queued and set Value
// once. An Elem is in at most one List.
type Elem[T any] struct {
	Value      T
	next, prev *Elem[T]
	list       *List[T]
}

// Queued reports whether the element is in a list.
func (e *Elem[T]) Queued() bool { return e.list != nil }

// Len returns the number of elements.
func (l *List[T]) Len() int {
	if l == nil {
		return 0
	}
	return l.n
}

// Front returns the first element's value, or the zero value and false.
func (l *List[T]) Front() (v T, ok bool) {
	if l == nil || l.front == nil {
		return v, false
	}
	return l.front.Value, true
}

// Back returns the last element's value, or the zero value and false.
func (l *List[T]) Back() (v T, ok bool) {
	if l == nil || l.back == nil {
		return v, false
	}
	return l.back.Value, true
}

// All are the values, the first one first. The one that is visited may leave meanwhile.
func (l *List[T]) All() func(yield func(T) bool) {
	return func(yield func(T) bool) {
		if l == nil {
			return
		}
		for e := l.front; e != nil; {
			next := e.next
			if !yield(e.Value) {
				return
			}
			e = next
		}
	}
}

// PushBack appends e, which must not be queued anywhere.
func (l *List[T]) PushBack(e *Elem[T]) {
	if e.list != nil {
		panic("BUG: queue: element is queued already")
	}
	e.list, e.prev, e.next = l, l.back, nil
	if l.back != nil {
		l.back.next = e
	} else {
		l.front = e
	}
	l.back = e
	l.n++
}

// Remove takes e out of the list and reports whether it was in it.
func (l *List[T]) Remove(e *Elem[T]) bool {
	if l == nil || e.list != l {
		return false
	}
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		l.front = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		l.back = e.prev
	}
	e.list, e.prev, e.next = nil, nil, nil
	l.n--
	return true
}

// Chain is a FIFO of elements that are in no List, and will not be in one before they are
// popped. Unlike a List it is not pointed to by its elements, so it can live on the stack.
// The zero value is empty.
type Chain[T any] struct{ front, back *Elem[T] }

// Push appends e.
func (c *Chain[T]) Push(e *Elem[T]) {
	if e.list != nil {
		panic("BUG: queue: element is queued already")
	}
	if e.next = nil; c.back != nil {
		c.back.next = e
	} else {
		c.front = e
	}
	c.back = e
}

// Next is the element behind e in its Chain, nil if it is the last one.
func (e *Elem[T]) Next() *Elem[T] { return e.next }

// Pop removes and returns the first value, or the zero value and false.
func (c *Chain[T]) Pop() (v T, ok bool) {
	e := c.front
	if e == nil {
		return v, false
	}
	if c.front, e.next = e.next, nil; c.front == nil {
		c.back = nil
	}
	return e.Value, true
}
