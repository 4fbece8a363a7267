package routing

import (
	"testing"
)

func TestRequestWithoutPromptIsPlacedByLoadOrModel(t *testing.T) {
	busy := equals(9, 9, 9, 9)
	busy[2].Inflight = 0
	for name, c := range map[string]struct {
		config Config
		r      Request
		want   Reason
	}{
		"least load is the default": {Config{}, Request{Model: 7}, ReasonLeastLoad},
		"and may be named":          {Config{NoKey: "least_load"}, Request{Model: 7}, ReasonLeastLoad},
		"by model":                  {Config{NoKey: "model_hash"}, Request{Model: 7}, ReasonModelHome},
		"no model either":           {Config{NoKey: "model_hash"}, Request{}, ReasonLeastLoad},
		"a prompt comes before":     {Config{NoKey: "model_hash"}, Request{Model: 7, Prefix: 3}, ReasonPrefixHome},
		"a chain alone is a prompt": {Config{NoKey: "model_hash"}, Request{Model: 7, Blocks: prompt(1, 0, 3)},
			ReasonPrefixHome},
		"but for fixed the first turn": {Config{Depth: "fixed"}, Request{Blocks: prompt(1, 0, 3)}, ReasonLeastLoad},
	} {
		pick := func(ws []View) (int, Reason) { return (&Pool{policy: mustCHWBL(t, c.config)}).pickLocked(&c.r, ws) }
		i, reason := pick(equals(0, 0, 0, 0))
		if reason != c.want {
			t.Errorf("%s: %d for %q, want %q", name, i, reason, c.want)
		}
		if i, reason := pick(busy); reason == ReasonLeastLoad && i != 2 {
			t.Errorf("%s: %d is not the least loaded", name, i)
		}
	}
	byModel := Config{NoKey: "model_hash"}
	home := homeOf(t, byModel, Request{Model: 7}, 4)
	ws := equals(0, 0, 0, 0)
	ws[home].Inflight = 9
	if i, reason := mustCHWBL(t, byModel).Pick(&Request{Model: 7}, ws); i == home || reason != ReasonModelOverflow {
		t.Errorf("over its bound the model's home has %d (%s)", i, reason)
	}
	if i, reason := mustCHWBL(t, byModel).Pick(&Request{Model: 7, OutputTokens: 1 << 40}, ws); i != home ||
		reason != ReasonModelSaturated {
		t.Errorf("too much for all it went to %d (%s), want %d", i, reason, home)
	}
}

func TestMaxPrefixLengthBoundsTheKey(t *testing.T) {
	// Blocks of 100 characters; the first turn ends with the fourth.
	blocks := make([]Block, 8)
	for i := range blocks {
		blocks[i] = Block{Hash: uint64(i + 1), End: int64(i+1) * 100}
	}
	for _, c := range []struct {
		max    int
		blocks []Block
		first  uint64
		want   uint64
	}{
		{0, blocks, 4, 4},
		{0, nil, 4, 4},
		{1, nil, 4, 4}, // without a chain nothing is known about its length
		{400, blocks, 4, 4},
		{401, blocks, 4, 4},
		{800, blocks, 4, 4},
		{399, blocks, 4, 3},
		{200, blocks, 4, 2},
		{100, blocks, 4, 1},
		{1, blocks, 4, 1}, // the first block, regardless of its length
		{250, blocks[:1], 1, 1},
	} {
		p := mustCHWBL(t, Config{Depth: "fixed", MaxPrefixLength: c.max})
		if _, got := p.key(&Request{Blocks: c.blocks, Prefix: c.first}, 4); got != c.want {
			t.Errorf("max_prefix_length %d of %d blocks: key %d, want %d", c.max, len(c.blocks), got, c.want)
		}
	}
	// Adaptive: however deep the prompts are the same, the key lies within.
	p := mustCHWBL(t, Config{MaxPrefixLength: 250})
	for range 1000 {
		if _, key := p.key(&Request{Now: start, Blocks: blocks, Prefix: 4}, 4); key > 2 {
			t.Fatalf("key %d is beyond 250 characters", key)
		}
	}
}
