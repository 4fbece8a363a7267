package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// smallestTokenizer is a tokenizer.json that has no tokens but the bytes.
func smallestTokenizer(t *testing.T) (path string) {
	t.Helper()
	vocab := map[string]int{}
	for b, next := 0, rune(256); b < 256; b++ {
		c := rune(b)
		if b < '!' || '~' < b && b < 0xa1 || b == 0xad { // these bytes have other characters
			c, next = next, next+1
		}
		vocab[string(c)] = b
	}
	text, err := json.Marshal(map[string]any{"model": map[string]any{"type": "BPE", "vocab": vocab, "merges": []string{}},
		"pre_tokenizer": map[string]any{"type": "ByteLevel", "add_prefix_space": false}})
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "tokenizer.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTheTokenizerOfAPolicyIsLoaded(t *testing.T) {
	src := keys + three + "policy: { name: kv_aware, lookup_timeout: 20ms, tokenizer: " +
		strconv.Quote(smallestTokenizer(t)) + " }\n"
	f, err := Parse("f", []byte(src), nil)
	if err != nil {
		t.Fatal(err)
	}
	p := f.ResolvedPools()[0].Policy
	if tok := f.Tokenizer(p); tok == nil || tok.Size() != 256 || p.LookupTimeout != 20*time.Millisecond {
		t.Errorf("%v for %+v", tok, p)
	}
	draft, err := f.Draft([]byte(src))
	if err != nil {
		t.Fatal(err)
	}
	if tok := draft.Tokenizer(p); tok != nil {
		t.Errorf("a draft has %v: it may not read files", tok)
	}
}
