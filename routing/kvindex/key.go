package kvindex

import (
	"encoding/binary"
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

// mix combines two hashes. It depends on their order.
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^0x9e3779b97f4a7c15, b^0xbf58476d1ce4e5b9)
	return hi ^ lo ^ bits.RotateLeft64(a, 31)
}

// Root is the parent key of the first block of a prompt. The namespace separates the models of workers
// that share an index; blockSize is in tokens.
func Root(namespace string, blockSize int) uint64 {
	return mix(xxhash.Sum64String(namespace), uint64(blockSize))
}

// next is the key of the block after the one with the key parent.
func next(parent uint64, tokens []uint32, extra uint64) uint64 {
	var d xxhash.Digest
	d.ResetWithSeed(parent)
	var b [256]byte
	for len(tokens) > 0 {
		n := min(len(tokens), len(b)/4)
		for i, t := range tokens[:n] {
			binary.LittleEndian.PutUint32(b[4*i:], t)
		}
		d.Write(b[:4*n]) // never fails
		tokens = tokens[n:]
	}
	key := d.Sum64()
	if extra != 0 {
		key = mix(key, extra)
	}
	return key
}

// AppendKeys appends the keys of a prompt's full blocks. root is that of the prompt, or the key of the
// block before tokens. extras are the extras of the first blocks (see [kvevents.ExtraKey]), and each is
// that of all blocks behind them; nil and 0 mean none.
func AppendKeys(keys []uint64, root uint64, blockSize int, tokens []uint32, extras []uint64, each uint64) []uint64 {
	for parent := root; len(tokens) >= blockSize && blockSize > 0; tokens = tokens[blockSize:] {
		extra := each
		if len(extras) > 0 {
			extra, extras = extras[0], extras[1:]
		}
		parent = next(parent, tokens[:blockSize], extra)
		keys = append(keys, parent)
	}
	return keys
}
