package queue

// Offers are things that their owners give back, which takes a message and its answer. As long as
// one message is out, whatever else is given back is on offer: the next caller takes it, and no
// message is needed. What nobody takes goes on when the answer comes:
//
//   - what was on offer already when that message was sent;
//   - if nobody came meanwhile, all;
//   - at least the oldest, whose message is the next one that the others wait for.
//
// So nothing is on offer for longer than two answers take. The zero value is ready. It is not safe
// for concurrent use.
type Offers[E comparable] struct {
	list  []E // from first on, oldest first
	first int

	out     int  // messages without an answer
	before  int  // of the oldest: on offer when those were sent
	due     int  // of the oldest: go on
	taken   bool // one came since those were sent
	letting bool // somebody goes on with what is due
}

// Len is how many are on offer.
func (o *Offers[E]) Len() int { return len(o.list) - o.first }

// Oldest is the first that is to be taken. There must be one.
func (o *Offers[E]) Oldest() E { return o.list[o.first] }

// Open reports whether something that is given back now goes on offer.
func (o *Offers[E]) Open() bool { return o.out > 0 }

// Push puts e on offer.
func (o *Offers[E]) Push(e E) {
	if o.first > 0 && len(o.list) == cap(o.list) {
		n := copy(o.list, o.list[o.first:])
		clear(o.list[n:])
		o.list, o.first = o.list[:n], 0
	}
	o.list = append(o.list, e)
}

// Take takes e, the oldest one, for somebody who came.
func (o *Offers[E]) Take(e E) {
	o.taken = true
	o.Remove(e)
}

// Remove takes e off the offer, which must be on. It is the oldest mostly.
func (o *Offers[E]) Remove(e E) {
	at := 0
	for o.list[o.first+at] != e {
		at++
	}
	if at < o.before {
		o.before--
	}
	if at < o.due {
		o.due--
	}
	var none E
	copy(o.list[o.first+1:], o.list[o.first:o.first+at])
	o.list[o.first] = none
	if o.first++; o.first == len(o.list) {
		o.list, o.first = o.list[:0], 0
	}
}

// Sent notes a message that the others wait for.
func (o *Offers[E]) Sent() {
	if o.out == 0 {
		o.before, o.taken = o.Len(), false
	}
	o.out++
}

// Answered notes the answer to one, or that there is none. It reports whether its caller has to go
// on with what is due: see Due.
func (o *Offers[E]) Answered() bool {
	if o.out--; o.out > 0 || o.Len() == 0 {
		return false
	}
	if !o.taken {
		return o.LetAll()
	}
	return o.let(max(o.before, 1))
}

// LetAll has all go on that are on offer. Its result is that of Answered.
func (o *Offers[E]) LetAll() bool { return o.let(o.Len()) }

func (o *Offers[E]) let(n int) bool {
	o.due = max(o.due, n)
	if o.letting || n == 0 {
		return false
	}
	o.letting = true
	return true
}

// Due is the oldest one if it goes on. Who goes on removes it, and asks again until there is none.
func (o *Offers[E]) Due() (e E, ok bool) {
	if o.due == 0 && o.out == 0 { // those that went on sent nothing to wait for
		o.due = o.Len()
	}
	if o.letting = o.due > 0; o.letting {
		return o.Oldest(), true
	}
	return e, false
}
