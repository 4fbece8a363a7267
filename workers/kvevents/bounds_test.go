package kvevents

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/tinylib/msgp/msgp"
)

// held is the memory of a decoder's buffers, in bytes.
func held(d *Decoder) int {
	return 8*(cap(d.hashes)+cap(d.extra)) + 4*cap(d.tokens) + int(unsafe.Sizeof(Event{}))*cap(d.batch.Events)
}

// head begins a batch with a number of events.
func head(events int) []byte {
	b := msgp.AppendFloat64(msgp.AppendArrayHeader(nil, 2), 1)
	return msgp.AppendArrayHeader(b, uint32(events))
}

// ones appends an array of small numbers, of one byte each.
func ones(b []byte, n int) []byte {
	return append(msgp.AppendArrayHeader(b, uint32(n)), slices.Repeat([]byte{1}, n)...)
}

// appendStore appends a store with numbers of one byte, for a named adapter.
func appendStore(b []byte, blocks, tokens int) []byte {
	b = msgp.AppendString(msgp.AppendArrayHeader(b, 8), "BlockStored")
	b = ones(msgp.AppendNil(ones(b, blocks)), tokens)
	b = msgp.AppendNil(msgp.AppendInt(msgp.AppendInt(b, max(1, tokens/max(1, blocks))), 1))
	return msgp.AppendString(b, "a")
}

// appendRemovals appends removals of one block each.
func appendRemovals(b []byte, n int) []byte {
	for range n {
		b = ones(msgp.AppendString(msgp.AppendArrayHeader(b, 2), "BlockRemoved"), 1)
	}
	return b
}

func TestBatchOverTheBoundsIsAnError(t *testing.T) {
	for name, c := range map[string]struct {
		payload []byte
		ok      bool
	}{
		"the most blocks":    {appendStore(head(1), MaxBlocks, 0), true},
		"one block more":     {appendStore(head(1), MaxBlocks+1, 0), false},
		"blocks of two":      {appendStore(appendStore(head(2), MaxBlocks, 0), 1, 0), false},
		"the most tokens":    {appendStore(head(1), 1, MaxTokens), true},
		"one token more":     {appendStore(head(1), 1, MaxTokens+1), false},
		"the most events":    {appendRemovals(head(MaxEvents), MaxEvents), true},
		"one event more":     {appendRemovals(head(MaxEvents+1), MaxEvents+1), false},
		"the most of it all": {appendRemovals(appendStore(head(MaxEvents), MaxBlocks/2, MaxTokens), MaxEvents-1), true},
	} {
		var d Decoder
		if _, err := d.Decode(c.payload); c.ok != (err == nil) || err != nil && !errors.Is(err, ErrBatch) {
			t.Errorf("%s: %v", name, err)
		}
		if n := held(&d); n > 16<<20 {
			t.Errorf("%s: %d bytes", name, n)
		}
	}
}

func TestLargestMessageAllocatesLittleAndLeavesNothing(t *testing.T) {
	const largest = 4 << 20
	for name, payload := range map[string][]byte{
		"hashes with an adapter": appendStore(head(1), largest-100, 0),
		"tokens":                 appendStore(head(1), 1, largest-100),
		"empty removals": func() []byte {
			n := largest / 14
			b := head(n)
			for range n {
				b = msgp.AppendString(msgp.AppendArrayHeader(b, 1), "BlockRemoved")
			}
			return b
		}(),
		"the bounds": appendRemovals(appendStore(head(MaxEvents), MaxBlocks/2, MaxTokens), MaxEvents-1),
	} {
		var d Decoder
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		d.Decode(payload) // most of them are over the bounds
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 {
			t.Errorf("%s: %d bytes were allocated for %d", name, n, len(payload))
		}
		if d.Trim(); held(&d) > 0 {
			t.Errorf("%s: %d bytes are kept", name, held(&d))
		}
	}
}

func TestBuffersAreKeptForUsualPayloadsOnly(t *testing.T) {
	var d Decoder
	usual := appendStore(head(1), 1024, 16*1024)
	if _, err := d.Decode(usual); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(10, func() { d.Trim(); d.Decode(usual) }); n > 0 { // was read above
		t.Errorf("%v allocations for a payload of %d bytes", n, len(usual))
	}
	large := appendStore(head(1), 8192, 8*8192)
	for range 2 {
		if b, err := d.Decode(large); err != nil || len(b.Events) != 1 || held(&d) == 0 {
			t.Fatalf("%v", err)
		}
	}
	if b, err := d.Decode(usual); err != nil || len(b.Events) != 1 || held(&d) > 1<<20 {
		t.Errorf("%d bytes are kept, %v", held(&d), err)
	}
}

// TestLargestBatchOfAnEngineIsWithinTheBounds: one step stores 8,192 blocks of 16 tokens, each with a
// digest of 32 bytes, an adapter and the key of an image, and removes as many, one by one.
func TestLargestBatchOfAnEngineIsWithinTheBounds(t *testing.T) {
	const blocks, size = 8192, 16
	digest := make([]byte, 32)
	b := head(blocks + 1)
	for range blocks {
		b = pack(t, b, map[string]any{"type": "BlockRemoved", "block_hashes": []any{digest}, "medium": "GPU", "group_idx": 0})
	}
	hashes, tokens, extra := make([]any, blocks), make([]any, blocks*size), make([]any, blocks)
	for i := range blocks {
		hashes[i], extra[i] = digest, []any{"an-adapter", []any{strings.Repeat("f", 64), 100_000}}
	}
	for i := range tokens {
		tokens[i] = uint32(150_000)
	}
	b = pack(t, b, map[string]any{"type": "BlockStored", "block_hashes": hashes, "token_ids": tokens, "block_size": size,
		"lora_id": 1, "lora_name": "an-adapter", "extra_keys": extra, "medium": "GPU", "group_idx": 0})
	if limit := 4 << 20; len(b) > limit {
		t.Errorf("%d bytes, where a message may have %d", len(b), limit)
	}
	var d Decoder
	got, err := d.Decode(b)
	if err != nil || len(got.Events) != blocks+1 || got.Rejected != (Batch{}).Rejected {
		t.Fatalf("%d events, %v", len(got.Events), err)
	}
	t.Logf("%.1f MiB", float64(len(b))/(1<<20))
}
