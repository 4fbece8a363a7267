package kvindex

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"maps"
	"os"
	"testing"

	"tierway/workers/kvevents"
)

// recorded is a line of a recording: a message of the engine's event stream, or a request with the
// engine's report of it.
type recorded struct {
	Seq     int
	Payload []byte

	Request string
	Tokens  []uint32
	First   []string // what distinguishes the first block
	Each    []string // what distinguishes each later one
	Cached  int      // prompt tokens that the engine took from its cache
}

// TestIndexPredictsTheCachedTokensOfARealEngine replays four recordings of vLLM 0.32. The
// requests that are listed cannot be predicted from the events before them.
func TestIndexPredictsTheCachedTokensOfARealEngine(t *testing.T) {
	const blockSize = 32
	unpredictable := map[string]map[string]int{
		"main": {
			"n-2":                128, // its second sample finds the block of the first
			"twin-1":             0,   // its twin's blocks are stored after it was routed
			"chat-1-after-reset": 160, // the reset is published with the step after it
		},
		"restart": {"chat-1": 160}, // the restart shows with the step after it
		"lora":    {},
		"swa":     {},
	}
	requests := 0
	for name, exceptions := range unpredictable {
		x := New(1 << 20)
		w, err := x.Add("")
		if err != nil {
			t.Fatal(err)
		}
		var d kvevents.Decoder
		last, wrong := -1, map[string]int{}
		for _, r := range recording(t, "testdata/vllm-0.32/"+name+".jsonl.gz") {
			if r.Request == "" {
				b, err := d.Decode(r.Payload)
				if err != nil {
					t.Fatal(err)
				}
				if r.Seq <= last {
					w.Reset()
				}
				last = r.Seq
				w.Apply(b)
				continue
			}
			// The engine always computes the last token of a prompt.
			keys := AppendKeys(nil, Root("", blockSize), blockSize, r.Tokens[:len(r.Tokens)-1],
				[]uint64{kvevents.ExtraKey(r.First...)}, kvevents.ExtraKey(r.Each...))
			var m [MaxWorkers]Match
			x.Overlap(keys, &m)
			if got := m[w.ID()].Blocks * blockSize; got != r.Cached {
				wrong[r.Request] = got
			}
			requests++
		}
		if !maps.Equal(wrong, exceptions) {
			t.Errorf("%s: wrong predictions %v, not %v", name, wrong, exceptions)
		}
	}
	if requests != 48 {
		t.Errorf("%d requests", requests)
	}
}

func recording(t *testing.T, path string) (all []recorded) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() // it was only read
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for d := json.NewDecoder(z); ; {
		var r recorded
		if err := d.Decode(&r); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
}
