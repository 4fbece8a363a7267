package config

import (
	"strings"
	"testing"
	"time"
)

func TestTheTokenizerOfAPolicyIsLoaded(t *testing.T) {
	src := keys + three +
		"policy: { name: kv_aware, lookup_timeout: 20ms, tokenizer: ../tokenizer/testdata/bytes.json }\n"
	f, err := Parse("f", []byte(src), nil)
	if err != nil {
		t.Fatal(err)
	}
	p := f.ResolvedPools()[0].Policy
	tok := f.Tokenizer(p)
	if tok == nil || len(tok.Encode(nil, []byte("abc"))) != 3 || p.LookupTimeout != 20*time.Millisecond {
		t.Errorf("%v for %+v", tok, p)
	}
	draft, err := f.Draft(t.Context(), []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	if draft.Tokenizer(p) != f.Tokenizer(p) {
		t.Error("a draft has another tokenizer than the file beside it")
	}
	other, err := f.Draft(t.Context(), []byte(strings.Replace(src, "/bytes.json", "/./bytes.json", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if tok := other.Tokenizer(other.ResolvedPools()[0].Policy); tok != nil {
		t.Error("a draft has read a tokenizer.json that the file beside it does not name")
	}
}
