package replyreader

import "github.com/pawl-lock/pawl/resp/wire"

// Elements returns the elements of an array, which borrow the same bytes.
func Elements(v wire.Value) []wire.Value {
	list := make([]wire.Value, 0, v.Len())
	v.Each(func(_ int, e wire.Value) bool {
		list = append(list, e)
		return true
	})
	return list
}

// Field finds one in a flat list of names and values, "" if it is not there.
func Field(list wire.Value, name string) string {
	fields := Elements(list)
	for i := 0; i+1 < len(fields); i += 2 {
		if string(fields[i].Bytes) == name {
			return string(fields[i+1].Bytes)
		}
	}
	return ""
}
