package kvevents

import (
	"encoding/hex"
	"os"
	"strings"
	"testing"
)

// messages decodes a file of testdata with one payload per line, as hexadecimal text; lines with # are
// comments.
func messages(t testing.TB, name string) (all [][]byte) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name + ".hex")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		b, err := hex.DecodeString(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	return all
}

// Hashes of both streams. Negative ones stand for their bits.
const (
	hashA = uint64(0xa000000000000000 - 1) // -6917529027641081857
	hashB = uint64(1<<60 + 1)
	hashC = ^uint64(41)     // -42
	hashE = uint64(1) << 63 // -2^63
	minus = ^uint64(0)      // -1
	other = ^uint64(2)      // -3
)

// storedAfter is a store of blocks of the streams' prompt, from a block on.
func storedAfter(parent uint64, from int, m Medium, hashes ...uint64) Event {
	e := Event{Kind: Stored, Medium: m, Hashes: hashes, Parent: parent, HasParent: true, BlockSize: 4}
	for i := range hashes {
		for k := range 4 {
			e.Tokens = append(e.Tokens, uint32(150_000+10*(from+i)+k))
		}
	}
	return e
}

// storedFirst is a store of the prompt's first blocks without a parent.
func storedFirst(m Medium, extra []uint64, hashes ...uint64) Event {
	e := storedAfter(0, 0, m, hashes...)
	e.HasParent, e.Extra = false, extra
	return e
}

func TestStreamsOfOtherEnginesAreDecoded(t *testing.T) {
	removed := func(m Medium, hash uint64) Event { return Event{Kind: Removed, Medium: m, Hashes: []uint64{hash}} }
	for name, want := range map[string][][]Event{
		"lmcache-stream": {
			{storedAfter(0, 0, CPU, hashA, hashB)}, // 0 is a root: no block has this hash
			{storedAfter(hashB, 2, GPU, hashC)},
			{storedAfter(hashC, 3, CPU, hashE)},
			{storedAfter(hashE, 4, CPU, 77)},
			{storedAfter(0, 0, CPU, hashA), storedAfter(0, 9, CPU, other)},
		},
		"sglang-stream": {
			{storedFirst(GPU, []uint64{ExtraKey("tenant-a"), 0}, minus, hashA)},
			{withExtra(storedAfter(hashA, 2, GPU, hashB), 0)},
			{storedFirst(GPU, []uint64{ExtraKey("ad1")}, hashC)},
			{withExtra(storedAfter(hashA, 2, CPU, hashB), 0), removed(GPU, hashB)},
			{storedFirst(GPU, nil, 300)},
			{removed(GPU, 300)},
			{removed(GPU, hashA)},
			{{Kind: Cleared}},
		},
	} {
		var d Decoder
		all := messages(t, name)
		if len(all) != len(want) {
			t.Fatalf("%s has %d messages", name, len(all))
		}
		for i, payload := range all {
			got, err := d.Decode(payload)
			batch := Batch{Time: float64(i + 1), Events: want[i]}
			if err != nil || !sameBatch(got, &batch) {
				t.Errorf("%s, message %d:\n got %+v, %v\nwant %+v", name, i, got, err, batch)
			}
		}
	}
}

func withExtra(e Event, extra ...uint64) Event {
	e.Extra = extra
	return e
}
