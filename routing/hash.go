package routing

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// Hash is a 64-bit hash. In JSON it is a string of 16 hexadecimal digits, because many parsers
// round large numbers.
type Hash uint64

// MarshalText returns 16 hexadecimal digits.
func (h Hash) MarshalText() ([]byte, error) { return h.append(make([]byte, 0, 16)), nil }

func (h Hash) append(b []byte) []byte {
	return hex.AppendEncode(b, binary.BigEndian.AppendUint64(nil, uint64(h)))
}

// UnmarshalText reads 16 hexadecimal digits.
func (h *Hash) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 16, 64)
	if err != nil || len(text) != 16 {
		return fmt.Errorf("%q is not a hash: write 16 hexadecimal digits", text)
	}
	*h = Hash(n)
	return nil
}

// Link is one Block of a recorded chain. In JSON it is a string "hash:end".
type Link Block

// MarshalText returns the hash's 16 digits, a colon and the end.
func (l Link) MarshalText() ([]byte, error) {
	b := Hash(l.Hash).append(make([]byte, 0, 24))
	return strconv.AppendInt(append(b, ':'), l.End, 10), nil
}

// UnmarshalText reads the text that MarshalText returns.
func (l *Link) UnmarshalText(text []byte) error {
	hash, end, _ := strings.Cut(string(text), ":")
	var h Hash
	if err := h.UnmarshalText([]byte(hash)); err != nil {
		return err
	}
	n, err := strconv.ParseInt(end, 10, 64)
	if err != nil || n < 0 {
		return fmt.Errorf("%q is not a block: write its hash, a colon and the character where it ends", text)
	}
	*l = Link{Hash: uint64(h), End: n}
	return nil
}

// chainLandmarkLog makes 81 landmarks of a chain of 4,096 blocks. At most a ninth of a shared prefix is
// missed.
const chainLandmarkLog = 4

// AppendChain appends the landmarks by which a chain is recorded: the first sixteen blocks, then
// eight per octave, and the last block. Of 4,096 blocks these are 81.
func AppendChain(to []Link, blocks []Block) []Link {
	last, links := len(blocks)-1, 0
	for d := 0; d <= last; d = nextLandmark(d, last, chainLandmarkLog) {
		links++
	}
	if to == nil {
		to = make([]Link, 0, links) // exact size, because a record is kept for long
	}
	for d := 0; d <= last; d = nextLandmark(d, last, chainLandmarkLog) {
		to = append(to, Link(blocks[d]))
	}
	return to
}
