package lockerr

import (
	"bytes"
	"encoding/hex"
	"strconv"
)

// Owner is an owner as it stands on the server, <uuid>:<number>, in 24 bytes: each name that is
// waited for keeps that of its holder. The zero Owner is unknown, or of another form.
type Owner struct {
	uuid   [16]byte
	number int64
}

// uuidSizes are the bytes of the parts of a UUID.
var uuidSizes = [...]int{4, 2, 2, 2, 6}

// ParseOwner reads the text of an owner. What it reads is what String writes, so a text of any
// other form is found out at the end.
func ParseOwner(text []byte) (o Owner) {
	uuid, number, ok := bytes.Cut(text, []byte(":"))
	if !ok || len(uuid) != 2*len(o.uuid)+len(uuidSizes)-1 {
		return Owner{}
	}
	at := 0
	for _, size := range uuidSizes {
		_, _ = hex.Decode(o.uuid[at:], uuid[:2*size])
		at, uuid = at+size, uuid[min(2*size+1, len(uuid)):]
	}
	digits, negative := bytes.CutPrefix(number, []byte("-"))
	for _, c := range digits {
		o.number = o.number*10 - int64(c-'0')
	}
	if !negative {
		o.number = -o.number
	}
	var buf [64]byte
	if !bytes.Equal(o.appendTo(buf[:0]), text) {
		return Owner{}
	}
	return o
}

// String returns the text; "" of an unknown owner.
func (o Owner) String() string {
	if o == (Owner{}) {
		return ""
	}
	return string(o.appendTo(nil))
}

func (o Owner) appendTo(dst []byte) []byte {
	at := 0
	for i, size := range uuidSizes {
		if i > 0 {
			dst = append(dst, '-')
		}
		dst = hex.AppendEncode(dst, o.uuid[at:at+size])
		at += size
	}
	return strconv.AppendInt(append(dst, ':'), o.number, 10)
}
