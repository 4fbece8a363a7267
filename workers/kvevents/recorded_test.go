package kvevents

import (
	"compress/gzip"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// recordedMessage is one live message of a vLLM engine: its parts, and their content as the engine's own
// library decodes it.
type recordedMessage struct {
	Frames  [][]byte
	Decoded struct {
		Batch []json.RawMessage
	}
}

// recordedEvent is an event as vLLM's library decodes it.
type recordedEvent struct {
	Type   string
	Hashes []recordedHash `json:"block_hashes"`
	Parent *recordedHash  `json:"parent_block_hash"`
	Tokens []uint32       `json:"token_ids"`
	Size   int            `json:"block_size"`
	LoRA   string         `json:"lora_name"`
	Extra  [][]string     `json:"extra_keys"`
	Group  int            `json:"group_idx"`
	Spec   string         `json:"kv_cache_spec_kind"`
	Window int            `json:"kv_cache_spec_sliding_window"`
}

// recordedHash is a hash, which is a number, or an object with a digest.
type recordedHash uint64

func (h *recordedHash) UnmarshalJSON(b []byte) error {
	var digest struct{ Bytes string }
	if json.Unmarshal(b, &digest) == nil && digest.Bytes != "" {
		all, err := hex.DecodeString(digest.Bytes)
		*h = recordedHash(binary.BigEndian.Uint64(all[len(all)-8:]))
		return err
	}
	var n uint64
	err := json.Unmarshal(b, &n)
	*h = recordedHash(n)
	return err
}

func recording(t testing.TB, path string) (all []recordedMessage) {
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
		var m recordedMessage
		if err := d.Decode(&m); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all = append(all, m)
	}
}

func TestRecordingsOfVLLMAreDecodedAsByItsOwnLibrary(t *testing.T) {
	paths, err := filepath.Glob("testdata/vllm-0.32/*.gz")
	if err != nil || len(paths) != 5 {
		t.Fatalf("recordings: %v, %v", paths, err)
	}
	for _, path := range paths {
		var d Decoder
		events := 0
		for i, m := range recording(t, path) {
			got, err := d.Decode(m.Frames[len(m.Frames)-1])
			if err != nil {
				t.Fatalf("%s: message %d: %v", path, i, err)
			}
			var want []recordedEvent
			if err := json.Unmarshal(m.Decoded.Batch[1], &want); err != nil {
				t.Fatal(err)
			}
			if len(got.Events) != len(want) || got.Rejected != (Batch{}).Rejected {
				t.Fatalf("%s: message %d: %d of %d events, rejected %v", path, i, len(got.Events), len(want),
					got.Rejected)
			}
			for k := range want {
				if what := difference(&got.Events[k], &want[k]); what != "" {
					t.Errorf("%s: message %d, event %d: %s\n got %+v\nwant %+v", path, i, k, what, got.Events[k], want[k])
				}
			}
			events += len(want)
		}
		if events < 5 {
			t.Errorf("%s has %d events", path, events)
		}
	}
}

// difference names a field in which an event differs from its record.
func difference(got *Event, want *recordedEvent) string {
	kind := map[string]Kind{"BlockStored": Stored, "BlockRemoved": Removed, "AllBlocksCleared": Cleared}[want.Type]
	hashes := make([]uint64, len(want.Hashes))
	for i, h := range want.Hashes {
		hashes[i] = uint64(h)
	}
	switch {
	case got.Kind != kind:
		return "kind"
	case !slices.Equal(got.Hashes, hashes):
		return "hashes"
	case got.HasParent != (want.Parent != nil) || want.Parent != nil && got.Parent != uint64(*want.Parent):
		return "parent"
	case !slices.Equal(got.Tokens, want.Tokens) || got.BlockSize != want.Size:
		return "tokens"
	case got.Group != want.Group || got.Sliding != strings.HasPrefix(want.Spec, "sliding") || got.Window != want.Window:
		return "group"
	}
	for i := range got.Extra {
		if i < len(want.Extra) && got.Extra[i] != ExtraKey(want.Extra[i]...) {
			return "extra keys"
		}
	}
	if got.Extra == nil && want.LoRA != "" {
		return "adapter"
	}
	return ""
}
