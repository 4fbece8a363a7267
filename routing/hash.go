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
	var raw [8]byte
	binary.BigEndian.PutUint64(raw[:], uint64(h))
	return hex.AppendEncode(b, raw[:])
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
func (l Link) MarshalText() ([]byte, error) { return l.append(make([]byte, 0, linkCapacity)), nil }

// linkCapacity fits the text of a link with up to eight digits for its end.
const linkCapacity = 16 + 1 + 8

func (l Link) append(b []byte) []byte {
	return strconv.AppendInt(append(Hash(l.Hash).append(b), ':'), l.End, 10)
}

// Chain is a recorded chain. In JSON it is an array of the texts of its links.
type Chain []Link

// MarshalJSON returns what package json makes of a []Link, without an allocation per link.
func (c Chain) MarshalJSON() ([]byte, error) {
	if c == nil {
		return []byte("null"), nil
	}
	b := append(make([]byte, 0, 2+len(c)*(linkCapacity+len(`"",`))), '[')
	for i, l := range c {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(l.append(append(b, '"')), '"')
	}
	return append(b, ']'), nil
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

// golden is 2^64 divided by the golden ratio, made odd: its multiples are spread evenly.
const golden = 0x9E3779B97F4A7C15

// Mix is a bijection that spreads every bit of x over all 64 bits. It is the finalizer of SplitMix64
// (Steele, Lea and Flood, 2014), with multipliers and shifts by David Stafford.
func Mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// HashText is the FNV-1a hash of a text. All gateways share it.
func HashText[T string | []byte](text T) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 0x100000001b3
	}
	return h
}

// Draw returns the random number of a state, as SplitMix64 does. The numbers of neighbouring states
// are independent.
func Draw(state uint64) uint64 { return Mix(state + golden) }

// Unit maps 64 random bits to a number in [0, 1). It uses 53 bits, which a float64 holds exactly.
func Unit(random uint64) float64 { return float64(random>>11) / (1 << 53) }
