package openai

import (
	"math/bits"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"
)

// What keeps kinds of values apart that would else have one hash. They are the
// fractions of square roots of primes, numbers with nothing up their sleeve; a
// change of any of them changes every hash.
const (
	saltSeed         uint64 = 0x6a09e667f3bcc908
	saltString       uint64 = 0xbb67ae8584caa73b
	saltScalar       uint64 = 0x3c6ef372fe94f82b
	saltArray        uint64 = 0xa54ff53a5f1d36f1
	saltObject       uint64 = 0x510e527fade682d1
	saltRole         uint64 = 0x9b05688c2b3e6c1f
	saltPart         uint64 = 0x1f83d9abfb41bd6b
	saltRest         uint64 = 0x5be0cd19137e2179
	saltEnd          uint64 = 0xcbbb9d5dc1059ed8
	saltTool         uint64 = 0x629a292a367cd507
	saltFunction     uint64 = 0x9159015a3070dd17
	saltResponse     uint64 = 0x152fecd8f70e5939
	saltConversation uint64 = 0x67332667ffc00b31
	saltCache        uint64 = 0x8eb44a8768581511
	saltEmbeds       uint64 = 0xdb0c2e0d64f98fa7
)

// billingMark begins a block of system text that some of Anthropic's clients
// send first and change with every request. Engines drop it, else nothing after
// it would be found in their caches.
const billingMark = "x-anthropic-billing-header:"

// cacheMark is the member with which Anthropic's clients say what to keep.
const cacheMark = "cache_control"

// mix returns a hash of h and v in this order. For one h no two v have the same
// result, and the other way round: an odd factor, a sum and the finalizer of
// splitmix64 lose nothing.
func mix(h, v uint64) uint64 {
	x := bits.RotateLeft64(h*0x9e3779b97f4a7c15, 29) + v
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// ChainSeed returns a seed for AppendChain from what else tells prompts apart:
// the model, an adapter, the cache_salt that the engine gets. It tells
// ("ab", "c") from ("a", "bc") and is the same in every process.
func ChainSeed(parts ...string) uint64 {
	h := saltSeed
	for _, part := range parts {
		h = mix(h, xxhash.Sum64String(part))
	}
	return h
}

// digester hashes values of a body as what they mean and counts their text.
type digester struct {
	cursor
	size int64 // bytes of decoded text that the model reads of the values hashed
	buf  [blockBytes + utf8.UTFMax]byte
}

// digest returns a hash of a string's value and its length in bytes.
func (d *digester) digest(q quoted) (uint64, int) {
	if !q.escaped {
		return xxhash.Sum64(q.raw), len(q.raw)
	}
	n, rest := decode(d.buf[:], q.raw, 0, blockBytes)
	if len(rest) == 0 {
		return xxhash.Sum64(d.buf[:n]), n
	}
	var long xxhash.Digest
	long.Reset()
	size := n
	for {
		_, _ = long.Write(d.buf[:n]) // it has no error to return
		if len(rest) == 0 {
			return long.Sum64(), size
		}
		n, rest = decode(d.buf[:], rest, 0, blockBytes)
		size += n
	}
}

// value reads a value of any kind and returns its hash. Members of an object
// have no order, and one that is null is as good as none. how tells which of
// its strings are text, as it does in Parse.
func (d *digester) value(how reading) uint64 {
	switch d.b[d.i] {
	case '"':
		h, n := d.digest(d.str())
		if how == readTurns || how == readIDs || how == readAll {
			d.size += int64(n)
		}
		return mix(saltString, h)
	case '[':
		if how == readSource {
			how = readTurns
		}
		h := saltArray
		for d.enter(); d.more(']'); {
			h = mix(h, d.value(how))
		}
		return h
	case '{':
		if how == readSource {
			return d.source()
		}
		return d.object(how, false)
	}
	return mix(saltScalar, xxhash.Sum64(d.scalar()))
}

// object reads an object; marked says that a cache_control in it is a mark for
// Anthropic's cache, which no model reads.
func (d *digester) object(how reading, marked bool) uint64 {
	sum := uint64(0)
	for d.enter(); d.more('}'); {
		key := d.key()
		word := d.word(key)
		if d.b[d.i] == 'n' || marked && string(word) == cacheMark {
			d.skip()
			continue
		}
		within := inner(how, word)
		name, n := d.digest(key)
		if how == readAll {
			d.size += int64(n)
		}
		sum += mix(name, d.value(within))
	}
	return mix(saltObject, sum)
}

// inner tells how the member name of an object that is read as how counts.
func inner(how reading, name []byte) reading {
	if how == readTurns || how == readIDs {
		return partReading(name)
	}
	return how
}

// member reads the value of the member key and returns the hash of both. Such
// hashes are added up, so that the members' order does not matter.
func (d *digester) member(key quoted, how reading) uint64 {
	name, _ := d.digest(key)
	return mix(name, d.value(how))
}

// source reads Anthropic's source of a block. Its data is text only if its type
// says so, which may stand after it.
func (d *digester) source() uint64 {
	sum, data, prose := uint64(0), int64(0), false
	for d.enter(); d.more('}'); {
		key := d.key()
		how := readNothing
		switch name := d.word(key); {
		case d.b[d.i] == 'n':
			d.scalar()
			continue
		case string(name) == "content":
			how = readTurns
		case string(name) == "type" && d.b[d.i] == '"':
			at := d.i
			prose = string(d.word(d.str())) == "text"
			d.i = at
		case string(name) == "data" && d.b[d.i] == '"':
			before := d.size
			sum += d.member(key, readTurns)
			data, d.size = d.size-before, before
			continue
		}
		sum += d.member(key, how)
	}
	if prose {
		d.size += data
	}
	return mix(saltObject, sum)
}
