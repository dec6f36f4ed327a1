package slot

import "strings"

// How many slots a cluster has.
const (
	Bits  = 14
	Count = 1 << Bits
)

// Of returns the cluster slot of a key: the CRC16 of its hash tag, which is the
// text between the first { and the next }. Without a tag, or with an empty one, it is
// the CRC16 of the whole key. (Redis cluster specification, "Hash tags".)
func Of(key string) uint16 {
	if open := strings.IndexByte(key, '{'); open >= 0 {
		if length := strings.IndexByte(key[open+1:], '}'); length > 0 {
			key = key[open+1 : open+1+length]
		}
	}
	return crc16(key) % Count
}

// crc16 is CRC-16/XMODEM: polynomial 0x1021, nothing reflected, start and end zero.
func crc16(s string) uint16 {
	var crc uint16
	for i := range len(s) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^s[i]]
	}
	return crc
}

var crcTable = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		table[i] = crc
	}
	return table
}()
