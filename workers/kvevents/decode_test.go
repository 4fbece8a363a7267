package kvevents

import (
	"encoding/hex"
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/tinylib/msgp/msgp"
)

// fixture decodes a file of testdata that holds a payload as hexadecimal text.
func fixture(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name + ".hex")
	if err != nil {
		t.Fatal(err)
	}
	b, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// four are the tokens of most fixtures.
var four = []uint32{151644, 872, 198, 9064}

// stored is a store of one block with four tokens.
func stored(hash uint64) Event {
	return Event{Kind: Stored, Hashes: []uint64{hash}, Tokens: four, BlockSize: 4}
}

func TestEveryFormOfEngineIsDecoded(t *testing.T) {
	const live = 15760518052499183552
	twoBlocks := Event{Kind: Stored, Hashes: []uint64{123, 456}, Tokens: append(four[:4:4], 1, 2, 3, 4), BlockSize: 4}
	salted := stored(1<<64 - 1)
	salted.Medium, salted.Extra = CPU, []uint64{ExtraKey("tenant-a")}
	cleared := Event{Kind: Cleared}
	withExtra := stored(live)
	withExtra.Extra = []uint64{0}
	for name, want := range map[string]Batch{
		"vllm-array-5-fields": {Events: []Event{twoBlocks}},
		"vllm-array-bytes":    {Events: []Event{stored(1736447835066146335)}},
		"vllm-map":            {Events: []Event{withExtra}},
		"vllm-map-removed":    {Events: []Event{{Kind: Removed, Hashes: []uint64{live}}, cleared}},
		"vllm-array-removed":  {Events: []Event{{Kind: Removed, Hashes: []uint64{123}}, cleared}},
		"sglang-metadata":     {Events: []Event{salted}},
		"eagle-pairs": {Events: []Event{{Kind: Stored, Hashes: []uint64{11, 12}, Tokens: []uint32{10, 11, 12, 13},
			BlockSize: 2}}},
		"batch-as-map": {Events: []Event{cleared}},
	} {
		var d Decoder
		got, err := d.Decode(fixture(t, name))
		want.Time = 1
		if err != nil || !sameBatch(got, &want) {
			t.Errorf("%s:\n got %+v, %v\nwant %+v", name, got, err, want)
		}
	}
}

// sameBatch compares batches; an empty list is nil.
func sameBatch(a, b *Batch) bool {
	if a.Time != b.Time || a.Rejected != b.Rejected || len(a.Events) != len(b.Events) {
		return false
	}
	for i := range a.Events {
		x, y := a.Events[i], b.Events[i]
		if !slices.Equal(x.Hashes, y.Hashes) || !slices.Equal(x.Tokens, y.Tokens) || !slices.Equal(x.Extra, y.Extra) {
			return false
		}
		x.Hashes, x.Tokens, x.Extra, y.Hashes, y.Tokens, y.Extra = nil, nil, nil, nil, nil, nil
		if !reflect.DeepEqual(x, y) {
			return false
		}
	}
	return true
}

func TestCapturedMessageOfASimulatedEngineIsDecoded(t *testing.T) {
	var d Decoder
	b, err := d.Decode(fixture(t, "inference-sim"))
	if err != nil || len(b.Events) != 1 || b.Time < 1.7e9 {
		t.Fatalf("%+v, %v", b, err)
	}
	e := b.Events[0]
	if want := []uint64{2310982562964224727, 16740537091490284451, 5034316488149576933}; !slices.Equal(e.Hashes, want) {
		t.Errorf("hashes %v", e.Hashes)
	}
	if len(e.Tokens) != 48 || e.Tokens[0] != 638357778 || e.Tokens[47] != 1308104592 || e.BlockSize != 16 {
		t.Errorf("%d tokens of blocks of %d: %v", len(e.Tokens), e.BlockSize, e.Tokens)
	}
	if !e.HasParent || e.Parent != 0 { // 0 is a root only if no block has this hash: the index decides
		t.Errorf("parent %d, %v", e.Parent, e.HasParent)
	}
}

// pack encodes a value: a list as an array, fields as a map, any other by its type.
func pack(t testing.TB, b []byte, v any) []byte {
	t.Helper()
	switch v := v.(type) {
	case []any:
		b = msgp.AppendArrayHeader(b, uint32(len(v)))
		for _, x := range v {
			b = pack(t, b, x)
		}
		return b
	case msgp.Raw:
		return append(b, v...)
	}
	b, err := msgp.AppendIntf(b, v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func batchOf(t testing.TB, events ...any) []byte { return pack(t, nil, []any{1.0, events, 0}) }

func TestBadEventIsCountedAndTheOthersAreKept(t *testing.T) {
	clear := []any{"AllBlocksCleared"}
	for name, c := range map[string]struct {
		event any
		want  Reason
	}{
		"a type of tomorrow":           {[]any{"BlockMoved", []any{1}}, Unknown},
		"no type":                      {map[string]any{"block_hashes": []any{1}}, Malformed},
		"an empty array":               {[]any{}, Malformed},
		"a number":                     {7, Malformed},
		"hashes as a text":             {[]any{"BlockRemoved", "abc"}, Malformed},
		"a hash without bytes":         {[]any{"BlockRemoved", []any{[]byte{}}}, Malformed},
		"a token over 32 bits":         {[]any{"BlockStored", []any{1}, nil, []any{1 << 33}, 1}, Malformed},
		"a negative token":             {[]any{"BlockStored", []any{1}, nil, []any{-1}, 1}, Malformed},
		"an empty pair":                {[]any{"BlockStored", []any{1}, nil, []any{[]any{}}, 1}, Malformed},
		"a negative block size":        {[]any{"BlockStored", []any{1}, nil, []any{1}, -1}, Malformed},
		"tokens without a block size":  {[]any{"BlockStored", []any{1}, nil, []any{1}}, Malformed},
		"fewer tokens than the blocks": {[]any{"BlockStored", []any{1, 2}, nil, []any{1, 2, 3}, 2}, WrongLength},
		"a block after itself":         {[]any{"BlockStored", []any{9}, 9, []any{1}, 1}, SelfParent},
		"another worker's blocks": {map[string]any{"type": "BlockRemoved", "block_hashes": []any{1}, "locality": "REMOTE"},
			Elsewhere},
		"extra keys as a number": {[]any{"BlockStored", []any{1}, nil, []any{1}, 1, nil, nil, nil, 5}, Malformed},
	} {
		var d Decoder
		got, err := d.Decode(batchOf(t, clear, c.event, clear))
		if err != nil || len(got.Events) != 2 || got.Rejected[c.want] != 1 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestNewFieldsAndElementsAreSkipped(t *testing.T) {
	tail := []any{"BlockStored", []any{5}, nil, []any{1}, 1, nil, "GPU", nil, nil, 0, "full_attention", nil, "new", 9}
	field := map[string]any{"type": "BlockStored", "block_hashes": []any{5}, "token_ids": []any{1}, "block_size": 1,
		"session_id": "s", "new": map[string]any{"a": []any{1, 2}}}
	var d Decoder
	got, err := d.Decode(pack(t, nil, []any{1.0, []any{tail, field}, 3, "more", nil}))
	if err != nil || len(got.Events) != 2 || got.Rejected != (Batch{}).Rejected {
		t.Fatalf("%+v, %v", got, err)
	}
}

func TestHashesOfAnyEncodingAreTheirLast64Bits(t *testing.T) {
	for name, c := range map[string]struct {
		hash any
		want uint64
	}{
		"0":               {0, 0},
		"fixint":          {uint8(5), 5},
		"int8":            {int8(-3), 1<<64 - 3},
		"int16":           {int16(-300), 1<<64 - 300},
		"uint8":           {uint8(200), 200},
		"uint16":          {uint16(60000), 60000},
		"uint64":          {uint64(1<<64 - 2), 1<<64 - 2},
		"int64":           {int64(-1 << 63), 1 << 63},
		"32 bytes":        {append(make([]byte, 24), 1, 2, 3, 4, 5, 6, 7, 8), 0x0102030405060708},
		"4 bytes":         {[]byte{1, 2, 3, 4}, 0x01020304},
		"a text of bytes": {"\x00\x01", 1},
	} {
		var d Decoder
		got, err := d.Decode(batchOf(t, []any{"BlockRemoved", []any{c.hash}}))
		if err != nil || len(got.Events) != 1 || got.Events[0].Hashes[0] != c.want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestAdapterCountsOnceAndSaltInTheFirstBlock(t *testing.T) {
	image := []any{"id", 7}
	imageKey := xxhash.Sum64(pack(t, nil, image))
	for name, c := range map[string]struct {
		adapter, adapterID, extra any
		want                      []uint64
	}{
		"nothing":            {nil, nil, nil, nil},
		"nil for each block": {nil, nil, []any{nil, nil}, []uint64{0, 0}},
		"an adapter":         {"ad1", 1, nil, []uint64{ExtraKey("ad1"), ExtraKey("ad1")}},
		"an adapter stated twice": {"ad1", 1, []any{[]any{"ad1"}, []any{"ad1"}},
			[]uint64{ExtraKey("ad1"), ExtraKey("ad1")}},
		"an adapter and a salt": {"ad1", 1, []any{[]any{"ad1", "s"}, []any{"ad1"}},
			[]uint64{ExtraKey("s", "ad1"), ExtraKey("ad1")}},
		"a salt":                    {nil, nil, []any{[]any{"s"}, nil}, []uint64{ExtraKey("s"), 0}},
		"an image":                  {nil, nil, []any{nil, []any{image}}, []uint64{0, imageKey}},
		"keys for one block of two": {nil, nil, []any{[]any{"s"}}, []uint64{ExtraKey("s"), 0}},
	} {
		var d Decoder
		got, err := d.Decode(batchOf(t, []any{"BlockStored", []any{1, 2}, nil, []any{1, 2}, 1, c.adapterID, "GPU", c.adapter,
			c.extra}))
		if err != nil || len(got.Events) != 1 || !slices.Equal(got.Events[0].Extra, c.want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// TestBlocksOfAnAdapterWithoutItsNameAreNoBlocksOfTheModel: requests state an adapter by its name, so no
// request can match blocks that an engine publishes under the adapter's number alone.
func TestBlocksOfAnAdapterWithoutItsNameAreNoBlocksOfTheModel(t *testing.T) {
	var d Decoder
	named := []any{"BlockStored", []any{2}, nil, []any{1}, 1, 4, "GPU", "ad1"}
	for name, event := range map[string]any{
		"without the field": []any{"BlockStored", []any{1}, nil, []any{1}, 1, 4},
		"nil":               []any{"BlockStored", []any{1}, nil, []any{1}, 1, 4, "GPU", nil},
		"a map":             map[string]any{"type": "BlockStored", "block_hashes": []any{1}, "lora_id": 4},
	} {
		got, err := d.Decode(batchOf(t, event, named))
		if err != nil || got.Rejected[UnnamedAdapter] != 1 || len(got.Events) != 1 || got.Events[0].Hashes[0] != 2 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	got, err := d.Decode(batchOf(t, []any{"BlockStored", []any{1}, nil, []any{1}, 1, 0}))
	if err != nil || len(got.Events) != 1 || got.Events[0].Extra != nil {
		t.Errorf("number 0, which is no adapter: %+v, %v", got, err)
	}
}

func TestMediaAreToldByTheirNames(t *testing.T) {
	for name, want := range map[string]Medium{"": GPU, "GPU": GPU, "cuda": GPU, "device(type='cuda', index=0)": GPU,
		"CPU": CPU, "cpu": CPU, "CPU_TIER1": CPU, "CPU_PINNED": CPU, "DISK": Disk, "STORAGE": Disk, "FS": Disk, "OBJ": Disk,
		"surprise": GPU} {
		if got := mediumOf([]byte(name)); got != want {
			t.Errorf("%q is %v", name, got)
		}
	}
}

func TestCutPayloadIsAnErrorAtEveryByte(t *testing.T) {
	for _, name := range []string{"vllm-map", "vllm-array-bytes", "sglang-metadata", "batch-as-map", "eagle-pairs"} {
		whole := fixture(t, name)
		for n := range whole {
			var d Decoder
			if _, err := d.Decode(whole[:n]); !errors.Is(err, ErrBatch) {
				t.Errorf("%s cut to %d of %d bytes: %v", name, n, len(whole), err)
			}
		}
	}
}

func TestAnnouncedLengthsAllocateNothing(t *testing.T) {
	huge := msgp.Raw{0xdd, 0xff, 0xff, 0xff, 0xff, 0x01}
	for name, payload := range map[string][]byte{
		"a batch":  huge,
		"events":   pack(t, nil, []any{1.0, huge}),
		"an event": batchOf(t, huge),
		"hashes":   batchOf(t, []any{"BlockStored", huge}),
		"tokens":   batchOf(t, []any{"BlockStored", []any{1}, nil, huge}),
		"nesting":  batchOf(t, msgp.Raw(slices.Repeat([]byte{0x91}, 100_000))),
	} {
		var d Decoder
		if _, err := d.Decode(payload); err == nil || cap(d.hashes) > 64 || cap(d.tokens) > 64 || cap(d.batch.Events) > 8 {
			t.Errorf("%s: %v; %d hashes, %d tokens, %d events", name, err, cap(d.hashes), cap(d.tokens), cap(d.batch.Events))
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, name := range []string{"vllm-array-5-fields", "vllm-array-bytes", "vllm-map", "vllm-map-removed",
		"vllm-array-removed",
		"sglang-metadata", "eagle-pairs", "batch-as-map", "inference-sim"} {
		f.Add(fixture(f, name))
	}
	for _, name := range []string{"lmcache-stream", "sglang-stream"} {
		for _, payload := range messages(f, name) {
			f.Add(payload)
		}
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		var d Decoder
		b, err := d.Decode(payload)
		if err != nil {
			return
		}
		for _, e := range b.Events {
			if e.Kind < Stored || e.Kind > Cleared || e.Extra != nil && len(e.Extra) != len(e.Hashes) ||
				e.Kind == Stored && !e.Sliding && !e.Other && len(e.Tokens) > 0 && len(e.Tokens) != len(e.Hashes)*e.BlockSize {
				t.Fatalf("%+v", e)
			}
		}
		if n := held(&d); n > 4<<10+32*len(payload) || n > 16<<20 {
			t.Errorf("%d bytes for %d", n, len(payload))
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	payload := fixture(b, "inference-sim")
	var d Decoder
	b.ReportAllocs()
	b.SetBytes(int64(len(payload)))
	for b.Loop() {
		if _, err := d.Decode(payload); err != nil {
			b.Fatal(err)
		}
	}
}
