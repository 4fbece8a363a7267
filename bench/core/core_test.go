package core

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tierway/openai"
	"tierway/openai/prompt"
	"tierway/queue"
	"tierway/routing"
	"tierway/tiers"
)

// body returns a chat of 8 KB: a system prompt and alternating turns, with characters that JSON
// escapes.
func body(tb testing.TB) []byte {
	tb.Helper()
	const size = 8 << 10
	var b strings.Builder
	b.WriteString(
		`{"model":"auto","stream":true,"max_tokens":256,"messages":[{"role":"system","content":"You answer questions about the orders of a shop."}`)
	for turn := 0; b.Len() < size-600; turn++ {
		fmt.Fprintf(&b, `,{"role":"user","content":"Question %d: where does parcel \"%d\" stay?\n%s"}`, turn, 1000+turn,
			strings.Repeat("It was sent on Monday. ", 10))
		fmt.Fprintf(&b, `,{"role":"assistant","content":"It is on its way.\n%s"}`, strings.Repeat("The carrier has it. ", 10))
	}
	fmt.Fprintf(&b, `,{"role":"user","content":"%s And now?"}]}`,
		strings.Repeat("a", max(1, size-b.Len()-len(`,{"role":"user","content":" And now?"}]}`))))
	return []byte(b.String())
}

// rules returns twenty groups of keywords. None matches the body, so that every search runs to
// its end.
func rules() tiers.Rules {
	r := tiers.Rules{Preset: "none"}
	for i := range 20 {
		r.Keywords = append(r.Keywords, tiers.Keyword{Tier: "large", Name: fmt.Sprintf("group%d", i), Weight: 1,
			Match: []string{
				fmt.Sprintf(`\bprove%d\b`, i), fmt.Sprintf(`\bderivative.of%d\b`, i), fmt.Sprintf(`refactor(ing|ed)?.%d`, i)}})
	}
	return r
}

func catalog(tb testing.TB) *tiers.Catalog {
	tb.Helper()
	k, err := tiers.New(tiers.Config{Rules: rules(), Targets: []tiers.Target{
		{Name: "small", Tier: true, Model: "s"}, {Name: "medium", Tier: true, Model: "m"},
		{Name: "large", Tier: true, Model: "l"}}})
	if err != nil {
		tb.Fatal(err)
	}
	return k
}

// inflight is the number of requests in flight on each worker.
const inflight = 8

// pool returns n workers that are up and have requests in flight. The prompts of these requests
// share their first blocks with the body.
func pool(tb testing.TB, policy string, n int) *routing.Pool {
	tb.Helper()
	p, err := routing.New(routing.Config{Name: policy})
	if err != nil {
		tb.Fatal(err)
	}
	members := make([]routing.Member, n)
	for i := range members {
		members[i] = routing.Member{ID: fmt.Sprint("worker-", i), Weight: 1}
	}
	pool := routing.NewPool(p, members)
	for _, m := range members {
		pool.Observe(m.ID, m.Ref, routing.Status{Up: true})
	}
	req, err := openai.Parse(openai.Chat, body(tb))
	if err != nil {
		tb.Fatal(err)
	}
	chain, first := prompt.AppendChain(nil, req, 0)
	for i := range inflight * n {
		blocks := make([]routing.Block, len(chain))
		for j, b := range chain {
			blocks[j] = routing.Block{Hash: b.Hash, End: b.End}
			if j > first { // the later blocks differ
				blocks[j].Hash += uint64(i + 1)
			}
		}
		if _, err := pool.Acquire(&routing.Request{Now: time.Unix(1, 0), Rand: uint64(i), Prefix: blocks[first-1].Hash,
			Blocks: blocks, PromptTokens: 2000, OutputTokens: 256, Stream: true}); err != nil {
			tb.Fatal(err)
		}
	}
	return pool
}

// decider decides about one request at a time, from its body to its worker.
type decider struct {
	catalog *tiers.Catalog
	chats   *tiers.Chats
	pool    *routing.Pool
	queue   *queue.Queue
	ticket  queue.Ticket
	workers int
	records bool // make a record of the decision, as the gateway does
	kept    []routing.Link
	request routing.Request
	now     time.Time
	rand    uint64

	req    *openai.Request
	chain  []prompt.Block
	first  int
	blocks []routing.Block
	turns  []uint64
	user   []byte
}

func (d *decider) parse(tb testing.TB, body []byte) {
	req, err := openai.Parse(openai.Chat, body)
	if err != nil {
		tb.Fatal(err)
	}
	d.req = req
}

func (d *decider) hash() { d.chain, d.first = prompt.AppendChain(d.chain[:0], d.req, 0) }

func (d *decider) classify(tb testing.TB) {
	d.turns = d.turns[:0]
	for _, b := range d.chain {
		if b.Message {
			d.turns = append(d.turns, b.Hash)
		}
	}
	f := tiers.ClassifierInput{Now: d.now, PromptTokens: d.req.PromptTokens(), MaxTokens: d.req.MaxTokens, Turns: d.turns,
		User: func() []byte {
			d.user = prompt.AppendUserText(d.user[:0], d.req, tiers.TextLimit)
			return d.user
		}}
	if _, err := d.catalog.Resolve(tiers.Query{Model: d.req.Model, Input: &f, Chats: d.chats}); err != nil {
		tb.Fatal(err)
	}
}

// acquire selects and books a worker, and releases the booking.
func (d *decider) acquire(tb testing.TB) {
	d.blocks = d.blocks[:0]
	for _, b := range d.chain {
		d.blocks = append(d.blocks, routing.Block{Hash: b.Hash, End: b.End})
	}
	d.rand += 0x9E3779B97F4A7C15
	var record *routing.Choice
	if d.records { // a record outlives its request, so its memory is not reused
		record = &routing.Choice{Candidates: make([]routing.Candidate, 0, min(d.workers, routing.MaxCandidates))}
		d.kept = routing.AppendChain(nil, d.blocks)
	}
	d.request = routing.Request{Rand: d.rand, Prefix: d.blocks[d.first-1].Hash, Blocks: d.blocks,
		PromptTokens: d.pool.Learned().PromptTokens(d.req.PromptTokens()),
		OutputTokens: d.pool.Learned().OutputTokens(d.req.MaxTokens), Stream: true, Record: record}
	d.ticket = queue.Ticket{Request: &d.request, Tokens: d.request.PromptTokens + d.request.OutputTokens}
	lease, err := d.queue.Enter(&d.ticket, d.now)
	if err != nil {
		tb.Fatal(err)
	}
	lease.Answered(d.now, nil)
	lease.Release(routing.Result{At: d.now})
}

func newDecider(tb testing.TB, policy string, workers int) *decider {
	d := &decider{catalog: catalog(tb), chats: tiers.NewChats(tiers.MaxChats), pool: pool(tb, policy, workers),
		workers: workers, now: time.Unix(1, 0)}
	waits := [queue.Classes]time.Duration{10 * time.Second, time.Minute, 10 * time.Minute}
	d.queue = queue.New(d.pool, queue.Config{MaxDepth: 1000, MaxWait: waits, AgedShare: 0.2}, func(*queue.Ticket) {})
	d.pool.Watch(func() {
		if d.queue.Waiting() > 0 {
			d.queue.Dispatch(d.now)
		}
	})
	return d
}

func BenchmarkParse(b *testing.B) {
	text, d := body(b), newDecider(b, "chwbl", 1)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		d.parse(b, text)
	}
}

func BenchmarkChain(b *testing.B) {
	d := newDecider(b, "chwbl", 1)
	d.parse(b, body(b))
	b.ReportAllocs()
	for b.Loop() {
		d.hash()
	}
}

// BenchmarkClassify matches 20 groups of three expressions against the chat, which ends in a
// short turn, and against one turn of 8 KB.
func BenchmarkClassify(b *testing.B) {
	turn := fmt.Sprintf(`{"model":"auto","messages":[{"role":"user","content":"%s"}]}`,
		strings.Repeat("Where does the parcel stay, and who has it now? ", 8<<10/48))
	for name, text := range map[string][]byte{"chat": body(b), "turn": []byte(turn)} {
		b.Run(name, func(b *testing.B) {
			d := newDecider(b, "chwbl", 1)
			d.parse(b, text)
			d.hash()
			b.ReportAllocs()
			for b.Loop() {
				d.classify(b)
			}
		})
	}
}

// BenchmarkAcquire measures the booking of a request that does not wait: queue, selection,
// booking, answer, release. "recorded" also makes the record that the gateway makes.
func BenchmarkAcquire(b *testing.B) {
	for _, policy := range []string{"least_load", "chwbl", "kv_aware"} {
		for _, workers := range []int{4, 16, 64} {
			for name, records := range map[string]bool{"plain": false, "recorded": true} {
				b.Run(fmt.Sprintf("%s/%d/%s", policy, workers, name), func(b *testing.B) {
					d := newDecider(b, policy, workers)
					d.records = records
					d.parse(b, body(b))
					d.hash()
					b.ReportAllocs()
					for b.Loop() {
						d.acquire(b)
					}
				})
			}
		}
	}
}

// BenchmarkAcquireLong measures the booking of a prompt of 1,000 blocks (some 125,000 tokens) under
// kv_aware among 16 workers of which each has a part of it cached, by history and by events.
func BenchmarkAcquireLong(b *testing.B) {
	const workers, blocks = 16, 1000
	p, err := routing.New(routing.Config{Name: "kv_aware"})
	if err != nil {
		b.Fatal(err)
	}
	members := make([]routing.Member, workers)
	for i := range members {
		members[i] = routing.Member{ID: fmt.Sprint("worker-", i), Weight: 1, Ref: i}
	}
	pool, now := routing.NewPool(p, members), time.Unix(1, 0)
	long := make([]routing.Block, blocks)
	for i := range long {
		long[i] = routing.Block{Hash: routing.Mix(uint64(i + 1)), End: int64(i+1) * 512}
	}
	for i, m := range members {
		pool.Observe(m.ID, m.Ref, routing.Status{Up: true, CacheTokens: 1 << 20})
		l, err := pool.Acquire(&routing.Request{Now: now, Blocks: long[:60*(i+1)], PromptTokens: int64(7500 * (i + 1)),
			Stream: true, Only: m.Ref})
		if err != nil {
			b.Fatal(err)
		}
		l.Answered(now, nil)
		l.Release(routing.Result{At: now})
	}
	r := routing.Request{Now: now, Prefix: long[0].Hash, Blocks: long, PromptTokens: 125_000,
		OutputTokens: 256, Stream: true}
	for i, m := range members {
		r.Cached = append(r.Cached, routing.CachedPrefix{Ref: m.Ref, Tokens: int64(7400 * (i + 1))})
	}
	b.ReportAllocs()
	for b.Loop() {
		r.Now = r.Now.Add(time.Millisecond)
		r.CachedAt = r.Now
		l, err := pool.Acquire(&r)
		if err != nil {
			b.Fatal(err)
		}
		l.Release(routing.Result{At: r.Now, Err: routing.ErrExcluded})
	}
}

// BenchmarkDecide measures the whole decision about one chat of 8 KB, with its record. The
// budget is 60 µs and 7 allocations; the target is 20 µs without parsing.
func BenchmarkDecide(b *testing.B) {
	text, d := body(b), newDecider(b, "kv_aware", 16)
	d.records = true
	b.ReportAllocs()
	for b.Loop() {
		d.parse(b, text)
		d.hash()
		d.classify(b)
		d.acquire(b)
	}
}

// TestDecisionStaysWithinAllocationBudget checks the whole decision, with its record. A feature that a request does not
// use, such as hand-overs, must not allocate.
func TestDecisionStaysWithinAllocationBudget(t *testing.T) {
	const most = 7 // as in docs/performance.md; each further allocation must have a reason
	text, d := body(t), newDecider(t, "kv_aware", 16)
	d.records = true
	if len(text) != 8<<10 {
		t.Fatalf("the body has %d bytes", len(text))
	}
	decide := func() {
		d.parse(t, text)
		d.hash()
		d.classify(t)
		d.acquire(t)
	}
	decide() // grows the reused buffers
	if n := testing.AllocsPerRun(100, decide); n > most {
		t.Errorf("one decision costs %v allocations, want at most %d", n, most)
	}
}
