package control

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tierway/config"
	"tierway/openai"
	"tierway/openai/prompt"
	"tierway/routing"
	"tierway/workers/prompttokens"
)

// TestAChangedTokenizerAppliesAtAReload: the path in the configuration stays the same.
func TestAChangedTokenizerAppliesAtAReload(t *testing.T) {
	vocabulary, err := os.ReadFile("../../tokenizer/testdata/bytes.json")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "tokenizer.json")
	write := func(data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(vocabulary)
	text := "store: { sql: \"\" }\npolicy: { name: kv_aware, tokenizer: " + path + " }\n" + small
	ctl := newTestControl(t, text)
	ctl.source = func() (*config.File, error) {
		return config.Parse("test.yaml", []byte("classifier: { preset: none }\n"+text), nil)
	}
	reload := func() *Pool {
		if _, err := ctl.Reload(t.Context(), ReloadRequest{}); err != nil {
			t.Fatal(err)
		}
		return ctl.Snapshot().Pools[0]
	}
	encoded := func(p *Pool) []uint32 { return p.tokenizer.EncodePrompt(nil, []byte("aa"), true) }
	old := ctl.Snapshot().Pools[0]
	if p := reload(); p.tokens != old.tokens || p.tokenizer != old.tokenizer {
		t.Error("the same file replaces the source of tokens, with all that it remembers")
	}
	write(bytes.ReplaceAll(vocabulary, []byte(`"a": 97`), []byte(`"a": 300`)))
	p := reload()
	if p.tokens == old.tokens || slices.Equal(encoded(p), encoded(old)) {
		t.Errorf("a changed vocabulary encodes a prompt as %v, and the old one as %v", encoded(p), encoded(old))
	}
	if p.Picker != old.Picker {
		t.Error("the policy has lost its memory")
	}
}

// TestThePolicysTokenizerNeedsNoWorker states it for a completion; chats need one.
func TestThePolicysTokenizerNeedsNoWorker(t *testing.T) {
	const tokenizing = "policy: { name: kv_aware, lookup_timeout: 1m, " +
		"tokenizer: ../../tokenizer/testdata/bytes.json }\n"
	ctl := newTestControl(t, tokenizing+small)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { ctl.Pools.runCacheSources(ctx) })
	defer running.Wait()
	defer stop()
	text := strings.Repeat("a", 99)
	r, err := openai.Parse(openai.Completions, []byte(`{"model":"m","prompt":"`+text+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	q := prompttokens.Query{Request: r, BlockSize: 16}
	q.Chain, _ = prompt.AppendChain(nil, r, 0)
	p := ctl.Snapshot().Pools[0]
	if got := p.tokens.Lookup(t.Context(), &q, nil); got.Tokens != 100 || len(got.Keys) != 6 {
		t.Errorf("%d tokens and %d keys, not 100 and 6", got.Tokens, len(got.Keys))
	}
	if without := newTestControl(t, "policy: { name: kv_aware }\n"+small).Snapshot().Pools[0]; without.tokenizer != nil {
		t.Error("a policy without a tokenizer has one")
	}
}

// TestLookupOptionsAreThoseOfThePolicyThatLooksUp, also if only a rule has it.
func TestLookupOptionsAreThoseOfThePolicyThatLooksUp(t *testing.T) {
	aware := routing.Config{Name: "kv_aware", LookupTimeout: 40 * time.Millisecond}
	hash := routing.Config{Name: "rendezvous_hash", FallbackKey: "none", Fallback: "kv_overlap",
		LookupTimeout: time.Second}
	for name, c := range map[string]struct {
		pool config.Pool
		want time.Duration
	}{
		"the pool's":       {config.Pool{Policy: aware}, aware.LookupTimeout},
		"a rule's":         {config.Pool{Policy: routing.Config{Name: "random"}, Rules: []config.PolicyRule{{Policy: aware}}}, aware.LookupTimeout},
		"that of fallback": {config.Pool{Policy: hash, Rules: []config.PolicyRule{{Policy: aware}}}, time.Second},
		"none":             {config.Pool{Policy: routing.Config{Name: "random"}}, 0},
	} {
		if got := lookupPolicy(&c.pool).LookupTimeout; got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
