package kvevents

import (
	"encoding/binary"
	"math"

	"github.com/tinylib/msgp/msgp"
)

// orMalformed returns err, or errMalformed for a value that was read and is invalid.
func orMalformed(err error) error {
	if err != nil {
		return err
	}
	return errMalformed
}

// eachElement calls read for each element of an array, which returns what follows the element.
// nil is an empty array.
func eachElement(b []byte, read func(b []byte) ([]byte, error)) ([]byte, error) {
	if rest, isNil := skipNil(b); isNil {
		return rest, nil
	}
	n, b, err := msgp.ReadArrayHeaderBytes(b)
	for range n {
		if err != nil {
			break
		}
		b, err = read(b)
	}
	return b, err
}

// eachField calls read for each field of a map.
func eachField(b []byte, read func(key, b []byte) ([]byte, error)) ([]byte, error) {
	n, b, err := msgp.ReadMapHeaderBytes(b)
	for range n {
		if err != nil {
			break
		}
		var key []byte
		if key, b, err = msgp.ReadMapKeyZC(b); err == nil {
			b, err = read(key, b)
		}
	}
	return b, err
}

func skipNil(b []byte) (rest []byte, isNil bool) {
	if !msgp.IsNil(b) {
		return b, false
	}
	return b[1:], true
}

// readText reads a text; nil is an empty one.
func readText(b []byte) (text, rest []byte, err error) {
	if rest, isNil := skipNil(b); isNil {
		return nil, rest, nil
	}
	return msgp.ReadStringZC(b)
}

// readNumber reads a float or an integer.
func readNumber(b []byte) (float64, []byte, error) {
	switch msgp.NextType(b) {
	case msgp.IntType, msgp.UintType:
		n, rest, err := msgp.ReadInt64Bytes(b)
		return float64(n), rest, err
	case msgp.Float32Type:
		f, rest, err := msgp.ReadFloat32Bytes(b)
		return float64(f), rest, err
	}
	return msgp.ReadFloat64Bytes(b)
}

// readCount reads an integer from 0 to 2^31-1. It returns none for nil.
func readCount(b []byte, none int) (int, []byte, error) {
	if rest, isNil := skipNil(b); isNil {
		return none, rest, nil
	}
	n, rest, err := msgp.ReadInt64Bytes(b)
	if err != nil || n < 0 || n > math.MaxInt32 {
		return none, nil, orMalformed(err)
	}
	return int(n), rest, nil
}

// readHash reads a block's hash: an integer, or the last 8 bytes of a digest. A negative integer stands for
// its bits. vLLM publishes the same 8 bytes if it is set to integers.
func readHash(b []byte) (uint64, []byte, error) {
	switch msgp.NextType(b) {
	case msgp.IntType:
		n, rest, err := msgp.ReadInt64Bytes(b)
		return uint64(n), rest, err
	case msgp.BinType, msgp.StrType:
		var digest []byte
		var err error
		if msgp.NextType(b) == msgp.BinType {
			digest, b, err = msgp.ReadBytesZC(b)
		} else {
			digest, b, err = msgp.ReadStringZC(b)
		}
		if err != nil || len(digest) == 0 {
			return 0, nil, orMalformed(err)
		}
		var last [8]byte
		tail := digest[max(0, len(digest)-8):]
		copy(last[8-len(tail):], tail)
		return binary.BigEndian.Uint64(last[:]), b, nil
	}
	return msgp.ReadUint64Bytes(b)
}
