package sim

import (
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	_ "tierway/fixedseed"
	"tierway/queue"
	"tierway/routing"
)

// at plans requests at literal moments.
type at []struct {
	when    time.Duration
	request Request
}

func (a at) Start(w *Simulation, _ *RNG) {
	for i := range a {
		w.At(a[i].when, func() { w.Submit(a[i].request) })
	}
}

// moments is the times of a request's dispatch, first token and end.
type moments struct{ granted, first, done time.Duration }

func momentsOf(r *Result) []moments {
	var all []moments
	for _, rec := range r.Records {
		all = append(all, moments{rec.DispatchedAt, rec.First, rec.Done})
	}
	return all
}

const ms = time.Millisecond

func TestEngineTimesFollowTheModel(t *testing.T) {
	system := Extend(nil, 1, 640)
	first, second := Extend(system, 2, 320), Extend(system, 3, 320)
	newRequest := func(chain []routing.Block, prompt, output int64) Request {
		return Request{Chain: chain, PromptTokens: prompt, OutputTokens: output}
	}
	for name, c := range map[string]struct {
		engine   Engine
		requests at
		want     []moments
	}{
		"alone: 1,000 tokens at 10,000/s and 8 ms, then 10 at 20.4 ms": {
			requests: at{{0, newRequest(nil, 1000, 10)}},
			want:     []moments{{0, 108 * ms, 312 * ms}},
		},
		"prefills come one after the other, the second at 0.996 of the rate, and decode beside the first": {
			requests: at{{0, newRequest(nil, 1000, 100)}, {0, newRequest(nil, 996, 10)}},
			want:     []moments{{0, 108 * ms, 2148 * ms}, {0, 216 * ms, 424 * ms}},
		},
		"what two prompts have in common is computed once, and all but the last token of one that is there whole": {
			requests: at{{0, newRequest(first, 960, 1)}, {time.Second, newRequest(second, 960, 1)},
				{2 * time.Second, newRequest(second, 960, 1)}},
			want: []moments{{0, 104 * ms, 124400 * time.Microsecond},
				{time.Second, 1040 * ms, 1060400 * time.Microsecond},
				{2 * time.Second, 2014400 * time.Microsecond, 2034800 * time.Microsecond}},
		},
		"an answer is in the cache for the next turn": {
			requests: at{{0, newRequest(first, 640, 320)}, {7 * time.Second, newRequest(Extend(first, 4, 64), 1024, 1)}},
			want: []moments{{0, 72 * ms, 6600 * ms},
				{7 * time.Second, 7014400 * time.Microsecond, 7034800 * time.Microsecond}},
		},
		"without room nothing is in the cache": {
			engine:   Engine{CacheTokens: -1},
			requests: at{{0, newRequest(first, 960, 1)}, {time.Second, newRequest(first, 960, 1)}},
			want:     []moments{{0, 104 * ms, 124400 * time.Microsecond}, {time.Second, 1104 * ms, 1124400 * time.Microsecond}},
		},
		"a request beyond max_num_seqs waits inside the engine": {
			engine:   Engine{MaxSeqs: 1},
			requests: at{{0, newRequest(nil, 920, 10)}, {0, newRequest(nil, 920, 10)}},
			want:     []moments{{0, 100 * ms, 304 * ms}, {0, 404 * ms, 608 * ms}},
		},
		"a request beyond max_inflight waits before it": {
			engine:   Engine{MaxInflight: 1},
			requests: at{{0, newRequest(nil, 920, 10)}, {50 * ms, newRequest(nil, 920, 10)}},
			want:     []moments{{0, 100 * ms, 304 * ms}, {304 * ms, 404 * ms, 608 * ms}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := play(t, Config{Engines: []Engine{c.engine}, Queue: patient(), Loads: []Load{c.requests}})
			if got := momentsOf(r); !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// TestNoiseVariesEachTime around its exact value, for both kinds of prefill.
func TestNoiseVariesEachTime(t *testing.T) {
	for _, chunk := range []int64{0, 2048} {
		var requests at
		for i := range 400 {
			requests = append(requests, at{{time.Duration(i) * time.Second, Request{PromptTokens: 1000, OutputTokens: 1}}}...)
		}
		times := func(noise float64) Times {
			e := Engine{Chunk: chunk, Noise: noise}
			f := play(t, Config{Seed: 1, Engines: []Engine{e}, Policy: leastLoad(), Admission: Direct,
				Loads: []Load{requests}}).Figures(0)
			return f.TTFT
		}
		exact, noisy := times(0), times(0.2)
		if exact[0] != exact.Max() {
			t.Errorf("chunk %d: without noise the first token comes after %s to %s", chunk, exact[0], exact.Max())
		}
		for _, c := range []struct{ q, want float64 }{{0.1587, 0.8187}, {0.5, 1}, {0.8413, 1.2214}} { // ±1 deviation
			if got := noisy.Quantile(c.q).Seconds() / exact[0].Seconds(); got < c.want*0.95 || got > c.want*1.05 {
				t.Errorf("chunk %d: the quantile %v is %.3f times the exact one, want %.3f", chunk, c.q, got, c.want)
			}
		}
	}
}

// TestCacheEvictsTheLeastRecentlyUsedBlock compares with a list of the blocks in the order of
// their last use.
func TestCacheEvictsTheLeastRecentlyUsedBlock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(0, 8).Draw(t, "blocks")
		c := newCache(most)
		var model []int32 // least recently used first
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			chain := rapid.SliceOfNDistinct(rapid.Int32Range(0, 11), 0, 10, rapid.ID).Draw(t, "chain")
			hits := 0
			for hits < len(chain) && slices.Contains(model, chain[hits]) {
				hits++
			}
			if got := c.hits(chain); got != hits {
				t.Fatalf("%d blocks of %v are there, want %d of %v", got, chain, hits, model)
			}
			c.store(chain)
			for _, b := range chain {
				model = append(slices.DeleteFunc(model, func(other int32) bool { return other == b }), b)
				model = model[max(0, len(model)-most):]
			}
		}
	})
}

func TestEventsRunInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h events
		var want, got []int
		times := rapid.SliceOf(rapid.IntRange(0, 9)).Draw(t, "times")
		for i, at := range times {
			h.plan(time.Duration(at), func() { got = append(got, i) })
			want = append(want, i)
		}
		slices.SortStableFunc(want, func(a, b int) int { return times[a] - times[b] })
		for len(h.heap) > 0 {
			h.next().do()
		}
		if !slices.Equal(got, want) {
			t.Fatalf("events at %v came as %v, want %v", times, got, want)
		}
	})
}

// TestSimulationIsDeterministic: one config has one result; another seed has another one.
func TestSimulationIsDeterministic(t *testing.T) {
	run := func(seed uint64) []moments {
		return momentsOf(play(t, chats{seed: seed, load: 0.4}.config()))
	}
	first := run(1)
	if !slices.Equal(run(1), first) {
		t.Error("the same config gave two results")
	}
	if slices.Equal(run(2), first) {
		t.Error("two seeds gave the same result")
	}
}

// TestAllAdmissionsGetTheSameRequests: all admissions get the same chats in the same order.
func TestAllAdmissionsGetTheSameRequests(t *testing.T) {
	firsts := map[Admission][]time.Duration{}
	for _, a := range []Admission{Queued, Direct, FIFO} {
		for _, rec := range play(t, chats{seed: 1, load: 0.4, admission: a}.config()).Records {
			if rec.Request.Prefix == rec.Request.Prompt()[len(rec.Request.Prompt())-1].Hash { // a chat's first turn
				firsts[a] = append(firsts[a], rec.SubmittedAt)
			}
		}
	}
	if len(firsts[Queued]) < 100 || !slices.Equal(firsts[Queued], firsts[Direct]) ||
		!slices.Equal(firsts[Queued], firsts[FIFO]) {
		t.Errorf("%d, %d and %d chats began, or at different times", len(firsts[Queued]), len(firsts[Direct]),
			len(firsts[FIFO]))
	}
}

// TestCancelledOrLateRequestIsNotDispatched: a client that leaves frees its place in the queue.
// A request past its deadline is not sent.
func TestCancelledOrLateRequestIsNotDispatched(t *testing.T) {
	busy := Request{Kind: "busy", PromptTokens: 920, OutputTokens: 100}
	for _, a := range []Admission{Queued, FIFO} {
		q := patient()
		q.MaxWait[2] = 500 * ms
		r := play(t, Config{Engines: []Engine{{MaxInflight: 1}}, Admission: a, Queue: q, Loads: []Load{at{
			{0, busy},
			{10 * ms, Request{Kind: "leaves", PromptTokens: 1, OutputTokens: 1, Patience: time.Second}},
			{20 * ms, Request{Kind: "late", Class: 2, PromptTokens: 1, OutputTokens: 1}},
			{30 * ms, Request{Kind: "stays", PromptTokens: 1, OutputTokens: 1}},
		}}})
		var shed *queue.ShedError
		if rec := r.Records[1]; rec.Dispatched() || !errors.Is(rec.Err, errLeft) || rec.Done != 1010*ms {
			t.Errorf("%s: the cancelled request has %v at %s", a, rec.Err, rec.Done)
		}
		if rec := r.Records[2]; rec.Dispatched() || !errors.As(rec.Err, &shed) || shed.Reason != queue.ShedWait ||
			rec.Done != 520*ms {
			t.Errorf("%s: the late request has %v at %s", a, rec.Err, rec.Done)
		}
		if rec := r.Records[3]; !rec.Answered() || rec.DispatchedAt != r.Records[0].Done {
			t.Errorf("%s: the remaining request was dispatched at %s, but a slot was free at %s", a, rec.DispatchedAt,
				r.Records[0].Done)
		}
	}
}

// TestSaturatedEngineGetsNoRequests while its own queue is observed to be long.
func TestSaturatedEngineGetsNoRequests(t *testing.T) {
	late := Request{Kind: "late", PromptTokens: 920, OutputTokens: 10}
	r := play(t, Config{
		Engines: []Engine{{MaxSeqs: 1, MaxInflight: 100}}, Queue: patient(),
		Scrape: 100 * ms, Saturation: routing.Saturation{Waiting: 2, StaleAfter: time.Second},
		Loads: []Load{Burst{Count: 4, Make: always(late)}, at{{150 * ms, late}}},
	})
	// Each of the four requests takes 304 ms: two wait in the engine until the second has
	// ended, and one after it.
	if got := r.Records[4].DispatchedAt; got != 608*ms {
		t.Errorf("dispatched at %s, want 608ms, when one request waits in the engine", got)
	}
}

// TestClientsRetryLikeTheSDKs: the delays are those of the official SDKs.
func TestClientsRetryLikeTheSDKs(t *testing.T) {
	w, err := newSimulation(Config{Engines: []Engine{{}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		attempt                 int
		retryAfter, least, most time.Duration
	}{
		{1, 5 * time.Second, 5 * time.Second, 5 * time.Second},
		{2, time.Minute, time.Minute, time.Minute},
		{1, 61 * time.Second, 375 * ms, 500 * ms},
		{1, 0, 375 * ms, 500 * ms},
		{2, 0, 750 * ms, time.Second},
		{5, 0, 6 * time.Second, 8 * time.Second},
		{90, 0, 6 * time.Second, 8 * time.Second},
	} {
		for range 100 {
			if got := w.retryDelay(c.attempt, c.retryAfter); got < c.least || got > c.most {
				t.Fatalf("with Retry-After %s the client retries %s after attempt %d, want %s to %s", c.retryAfter, got, c.attempt,
					c.least, c.most)
			}
		}
	}
}

func TestSimulationEndsAtUntil(t *testing.T) {
	r := play(t, Config{Engines: []Engine{{}}, Queue: patient(), Until: 50 * ms,
		Loads: []Load{at{{0, Request{PromptTokens: 920, OutputTokens: 1}}}}})
	if rec := r.Records[0]; rec.Ended || rec.Answered() || r.End != 50*ms || r.Engines[0].Left != 1 {
		t.Errorf("at %s it has ended: %t; %d are left", r.End, rec.Ended, r.Engines[0].Left)
	}
}

func TestInvalidConfigIsAnError(t *testing.T) {
	for name, c := range map[string]Config{
		"no engines":      {},
		"an unknown name": {Engines: []Engine{{}}, Policy: routing.Config{Name: "best"}},
		"two of a name":   {Engines: []Engine{{Name: "a"}, {Name: "a"}}},
	} {
		if _, err := Run(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
