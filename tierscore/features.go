package tierscore

import (
	"math"
	"math/bits"
)

// Version identifies the meaning of features. Features of different versions cannot be mixed.
const Version = 1

const (
	// WordColumns is the number of columns of words and bigrams together.
	WordColumns = 1 << 14
	// Columns is the number of columns of words, bigrams and counts.
	Columns = WordColumns + structureBuckets
)

// Input is the part of a request that has features.
type Input struct {
	Tenant string
	System []byte // text of the system prompt; only its hash is kept
	User   []byte // text of the last user turn
	Turns  int    // messages of the conversation, from all sides
	Tools  bool   // the request offers tools
}

// Features of one request. They have no text: of words and bigrams only the bucket ids. The number of words is lost,
// but bigrams have the order of neighbours. A reader who has the extractor's key and a dictionary can test if a word
// occurs, and reconstruct short prompts. The zero value is that of an empty request.
type Features struct {
	key     uint32 // identifies the extractor's key
	route   uint32 // hash of tenant and system prompt
	buckets int    // set bits of seen
	seen    [WordColumns / 64]uint64
	counts  counts
}

// counts are numbers of a request; their JSON has this order.
type counts struct {
	Kinds    [byteKinds]uint32 // bytes of the user text by kind
	Choices  uint32            // lines that begin with a letter or a number and a mark, such as "B. "
	Question uint32            // kind of the last question
	Turns    uint32
	Tools    uint32 // 1 if the request offers tools
	System   uint32 // 1 if the request has a system prompt
}

// Route returns the hash of tenant and system prompt.
func (f *Features) Route() uint32 { return f.route }

// Key returns the identity of the extractor's key. It does not reveal the key.
func (f *Features) Key() uint32 { return f.key }

func (f *Features) add(hash uint64) {
	at, bit := hash>>(64-8), uint64(1)<<(hash>>(64-14)&63)
	if f.seen[at]&bit == 0 {
		f.seen[at] |= bit
		f.buckets++
	}
}

// AppendColumns appends the columns that a request has in a model, in rising order. The first [Features.WordCount] are
// those of words and bigrams; the column of the route is not among them.
func (f *Features) AppendColumns(dst []uint32) []uint32 {
	f.visit(func(column, _ int) { dst = append(dst, uint32(column)) })
	return dst
}

// WordCount returns the number of buckets of words and bigrams. They are the first columns.
func (f *Features) WordCount() int { return f.buckets }

// visit calls f for the columns in rising order. Words and bigrams are part 0, all others part 1.
func (f *Features) visit(column func(column, part int)) {
	for at, set := range f.seen {
		for ; set != 0; set &= set - 1 {
			column(at<<6+bits.TrailingZeros64(set), 0)
		}
	}
	c := &f.counts
	from := WordColumns
	for _, r := range runs {
		for i := range min(r.level(c), r.levels) {
			column(from+i, 1)
		}
		from += r.levels
	}
	column(from+int(min(c.Question, questions-1)), 1)
}

// WordValue returns the value of each word and bigram of a request. It makes long and short texts comparable.
func WordValue(words int) float64 { return 1 / math.Sqrt(float64(words+1)) }
