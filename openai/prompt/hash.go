package prompt

import (
	"math/bits"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"

	"tierway/openai"
)

// Tags separate kinds of values that would otherwise have equal hashes. A changed tag changes every
// hash.
const (
	tagSeed uint64 = iota + 1
	tagString
	tagScalar
	tagArray
	tagObject
	tagRole
	tagPart
	tagRest
	tagEnd
	tagTool
	tagFunction
	tagResponse
	tagConversation
	tagCache
	tagEmbeds
)

// mix returns an ordered hash of two hashes or tags: both halves of a product, as in wyhash,
// with two of its constants. xxhash of the 16 bytes takes 8 % more instructions for the chain
// of a chat of 8 KB.
func mix(h, v uint64) uint64 {
	high, low := bits.Mul64(h^0xa0761d6478bd642f, v^0xe7037ed1a0b428db)
	return high ^ low
}

// cacheMark is the member with which Anthropic's clients mark content to cache. Models do not
// read it.
const cacheMark = "cache_control"

// digester hashes values of a body by their meaning and counts their text.
type digester struct {
	openai.Reader
	size int64 // bytes of decoded text, in the hashed values, that the model reads
	buf  [blockBytes + utf8.UTFMax]byte
}

func (d *digester) digestString(raw []byte) (uint64, int) {
	if !openai.Escaped(raw) {
		return xxhash.Sum64(raw), len(raw)
	}
	var decoded xxhash.Digest
	decoded.Reset()
	n, size := 0, 0
	for len(raw) > 0 {
		n, raw = openai.Unescape(d.buf[:], raw, 0, blockBytes)
		size += n
		_, _ = decoded.Write(d.buf[:n]) // it has no error to return
	}
	return decoded.Sum64(), size
}

// digestWord is digest of a string that may already be decoded as word; see Reader.Resolve.
func (d *digester) digestWord(raw, word []byte) (uint64, int) {
	if len(word) == len(raw) {
		return xxhash.Sum64(raw), len(raw)
	}
	return d.digestString(raw)
}

// hashValue reads a value of any kind and returns its hash. The order of members and null members
// make no difference. how selects the strings that count as text, as in Parse.
func (d *digester) hashValue(how openai.Reading) uint64 {
	switch d.Next() {
	case '"':
		h, n := d.digestString(d.Str())
		if how == openai.ReadTurns || how == openai.ReadIDs || how == openai.ReadAll {
			d.size += int64(n)
		}
		return mix(tagString, h)
	case '[':
		if how == openai.ReadSource {
			how = openai.ReadTurns
		}
		h := tagArray
		for d.Enter('['); d.More(']'); {
			h = mix(h, d.hashValue(how))
		}
		return h
	case '{':
		if how == openai.ReadSource {
			return d.hashSource()
		}
		return d.hashObject(how, false)
	}
	return mix(tagScalar, xxhash.Sum64(d.Scalar()))
}

// hashObject reads an object. marked means that a cache_control in it is a mark for Anthropic's
// cache.
func (d *digester) hashObject(how openai.Reading, marked bool) uint64 {
	sum := uint64(0)
	for d.Enter('{'); d.More('}'); {
		key := d.Key()
		word := d.Resolve(key)
		if d.Next() == 'n' || marked && string(word) == cacheMark {
			continue
		}
		name, n := d.digestWord(key, word)
		if how == openai.ReadAll {
			d.size += int64(n)
		}
		sum += mix(name, d.hashValue(how.ForMember(word)))
	}
	return mix(tagObject, sum)
}

// hashMember reads the value of a member and returns the hash of name and value. Such hashes are
// added, so the order of members does not matter.
func (d *digester) hashMember(key, word []byte, how openai.Reading) uint64 {
	name, _ := d.digestWord(key, word)
	return mix(name, d.hashValue(how))
}

// hashSource reads Anthropic's source of a block. Its data is text only if its type, which may
// follow, is "text".
func (d *digester) hashSource() uint64 {
	sum, data, text := uint64(0), int64(0), false
	for d.Enter('{'); d.More('}'); {
		key := d.Key()
		word, how := d.Resolve(key), openai.ReadNothing
		switch first := d.Next(); string(word) {
		case "content":
			how = openai.ReadTurns
		case "type":
			if first == '"' {
				at := d.Pos()
				text = string(d.Word()) == "text"
				d.Seek(at)
			}
		case "data":
			if first == '"' {
				before := d.size
				sum += d.hashMember(key, word, openai.ReadTurns)
				data, d.size = d.size-before, before
				continue
			}
		}
		if d.Next() != 'n' {
			sum += d.hashMember(key, word, how)
		}
	}
	if text {
		d.size += data
	}
	return mix(tagObject, sum)
}
