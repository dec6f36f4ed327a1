package wire

import "bytes"

// Kind is the type of a Value.
type Kind uint8

const (
	// KindInt is an integer reply; Value.Int holds it.
	KindInt Kind = iota + 1
	// KindBulk is a binary-safe string; Value.Bytes holds it.
	KindBulk
	// KindStatus is a status line such as OK; Value.Bytes holds its text.
	KindStatus
	// KindError is an error line; Value.Bytes holds its text, the code first.
	KindError
	// KindArray is an array; see Value.Len and Value.Each.
	KindArray
	// KindNil is the null bulk ("$-1") and the null array ("*-1") alike.
	KindNil
)

// Value is one reply of the server. Its bytes are borrowed from the buffer it
// was decoded from and are valid until that buffer is reused; Clone takes them
// along. The zero Value has no kind and stands for "no reply".
type Value struct {
	Kind Kind
	len  int32 // KindArray: number of elements; at most maxArray
	// Int is the number of KindInt.
	Int int64
	// Bytes is the text of KindBulk, KindStatus and KindError. For KindArray it is
	// the encoding of the elements, already checked.
	Bytes []byte
}

// Len returns the number of elements of an array, 0 for every other kind.
func (v Value) Len() int { return int(v.len) }

// Each calls f for the elements of an array, in order, until f returns false.
// It allocates nothing; the elements borrow the same bytes as v. For other
// kinds it does nothing.
func (v Value) Each(f func(i int, e Value) bool) {
	rest := v.Bytes
	for i := range v.Len() {
		e, n, err := parse(rest)
		if err != nil || !f(i, e) {
			return // err: cannot be, Decode has checked every element
		}
		rest = rest[n:]
	}
}

// Clone returns a copy of v that owns its bytes.
func (v Value) Clone() Value {
	v.Bytes = bytes.Clone(v.Bytes)
	return v
}
