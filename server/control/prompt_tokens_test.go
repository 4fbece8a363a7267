package control

import (
	"context"
	"strings"
	"sync"
	"testing"

	"tierway/openai"
	"tierway/openai/prompt"
	"tierway/workers/prompttokens"
)

// TestThePolicysTokenizerNeedsNoWorker states it for a completion; chats need one.
func TestThePolicysTokenizerNeedsNoWorker(t *testing.T) {
	const tokenizing = "policy: { name: kv_aware, lookup_timeout: 1m, " +
		"tokenizer: ../../tokenizer/testdata/bytes.json }\n"
	ctl := newTestControl(t, tokenizing+small)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { ctl.Pools.runTokens(ctx) })
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
