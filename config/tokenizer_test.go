package config

import (
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
	if tok := f.Tokenizer(p); tok == nil || tok.Size() != 257 || p.LookupTimeout != 20*time.Millisecond {
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
