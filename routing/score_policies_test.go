package routing

import (
	"testing"
	"time"
)

// loadedViews returns workers of weight 1 with those requests in flight.
func loadedViews(inflight ...int) (ws []View) {
	for i, n := range inflight {
		ws = append(ws, View{ID: string(rune('a' + i)), Index: i, Weight: 1, Inflight: n, Rate: 8000, Success: 1,
			PendingTokens: int64(n) * 1000})
	}
	return ws
}

func TestCacheAwareWeighsMatchAgainstBalance(t *testing.T) {
	for name, c := range map[string]struct {
		config  Config
		loads   []int
		overlap []int64 // of 1,000 prompt tokens
		blocks  []int
		want    int
		reason  Reason
	}{
		"a match":                           {overlap: []int64{0, 600, 0}, want: 1, reason: ReasonCacheMatch},
		"just too little":                   {overlap: []int64{0, 500, 0}, loads: []int{1, 1, 0}, want: 2, reason: ReasonCacheMiss},
		"the longest":                       {overlap: []int64{600, 700, 900}, want: 2, reason: ReasonCacheMatch},
		"of equals the least loaded":        {overlap: []int64{900, 900, 900}, loads: []int{2, 1, 3}, want: 1, reason: ReasonCacheMatch},
		"within 32 requests":                {overlap: []int64{900, 0, 0}, loads: []int{32, 0, 0}, want: 0, reason: ReasonCacheMatch},
		"beyond 32 requests":                {overlap: []int64{900, 0, 0}, loads: []int{33, 1, 0}, want: 2, reason: ReasonImbalanced},
		"beyond 32, within a tenth":         {overlap: []int64{900, 0, 0}, loads: []int{440, 400, 401}, want: 0, reason: ReasonCacheMatch},
		"another threshold":                 {config: Config{CacheThreshold: new(0.9)}, overlap: []int64{900, 0, 0}, loads: []int{1, 0, 1}, want: 1, reason: ReasonCacheMiss},
		"another absolute bound":            {config: Config{BalanceAbs: new(2.0)}, overlap: []int64{900, 0, 0}, loads: []int{3, 0, 1}, want: 1, reason: ReasonImbalanced},
		"another relative bound":            {config: Config{BalanceAbs: new(2.0), BalanceRel: new(4.0)}, overlap: []int64{900, 0, 0}, loads: []int{4, 1, 1}, want: 0, reason: ReasonCacheMatch},
		"a miss goes to the smallest tree":  {config: Config{OnMiss: "smallest_tree"}, loads: []int{0, 0, 5}, blocks: []int{9, 8, 7}, want: 2, reason: ReasonCacheMiss},
		"a miss with a fallback":            {config: Config{Fallback: "random"}, want: -1},
		"a miss with a fallback and a rule": {config: Config{Fallback: "random", OnMiss: "least_load"}, loads: []int{1, 1, 0}, want: 2, reason: ReasonCacheMiss},
	} {
		ws := loadedViews(0, 0, 0)
		if c.loads != nil {
			ws = loadedViews(c.loads...)
		}
		for i := range c.overlap {
			ws[i].Overlap = c.overlap[i]
		}
		for i := range c.blocks {
			ws[i].CachedBlocks = c.blocks[i]
		}
		i, reason := newCacheAware(c.config).Pick(&Request{PromptTokens: 1000, Now: start}, ws)
		if i != c.want || reason != c.reason {
			t.Errorf("%s: %d (%s), want %d (%s)", name, i, reason, c.want, c.reason)
		}
	}
}

// TestTreesAreLimitedAtIntervals: cache_aware forgets the least recently used blocks over max_tree_size.
func TestTreesAreLimitedAtIntervals(t *testing.T) {
	policy, err := New(Config{Name: "cache_aware", MaxTreeSize: 8, EvictionInterval: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	pool := NewPool(policy, []Member{{ID: "a", Weight: 1}})
	pool.Observe("a", nil, Status{Up: true})
	ask := func(chat int, at time.Duration) int {
		r := Request{Now: start.Add(at), Blocks: prompt(chat, 0, 6), PromptTokens: 600, Stream: true}
		l, err := pool.Acquire(&r)
		if err != nil {
			t.Fatal(err)
		}
		l.Answered(r.Now.Add(time.Second), nil)
		l.Release(Result{At: r.Now.Add(2 * time.Second), OutputTokens: 1})
		return pool.caches.blocksOf(0)
	}
	if n := ask(1, 0); n != 6 {
		t.Errorf("%d blocks of 6", n)
	}
	if n := ask(2, 5*time.Second); n != 12 {
		t.Errorf("%d blocks, and 12 until the interval ends", n)
	}
	if n := ask(3, 12*time.Second); n != 8 {
		t.Errorf("%d blocks after the interval, want 8", n)
	}
}

func TestLeastLatencyIsWarmFirst(t *testing.T) {
	ws := loadedViews(0, 0, 0)
	for i, mean := range []float64{0.3, 0.1, 0.2} {
		ws[i].Latency = LatencyFacts{Mean: mean, Samples: 10}
	}
	p, rand := newLeastLatency(), probing(true)
	pick := func(what string, want int, reason Reason) {
		t.Helper()
		if i, got := p.Pick(&Request{Stream: true, Now: start, Rand: rand}, ws); i != want || got != reason {
			t.Errorf("%s: %d (%s), want %d (%s)", what, i, got, want, reason)
		}
	}
	pick("the fastest", 1, ReasonLeastLatency)
	ws[1].Inflight = 2
	pick("three times as long behind two", 2, ReasonLeastLatency)
	ws[1].Weight = 3
	pick("by weight", 1, ReasonLeastLatency)
	ws[0].Latency.Idle = 9.9
	pick("idle for less than ten seconds", 1, ReasonLeastLatency)
	ws[0].Latency.Idle, ws[2].Latency.Idle = 10, 12
	pick("the idlest is probed", 2, ReasonLatencyProbe)
	rand = probing(false)
	pick("and not by most streams", 1, ReasonLeastLatency)
	rand = probing(true)
	ws[2].Inflight = 1
	pick("nor while it has a request", 0, ReasonLatencyProbe)
	if i, _ := p.Pick(&Request{Now: start}, ws); i != 1 {
		t.Errorf("a request without a stream probes %d", i)
	}
	ws[0].Latency.Samples = 9
	pick("one has nine samples", -1, "")
}

// probing returns a random number with which a stream may be a probe, or not.
func probing(probe bool) uint64 {
	for n := uint64(0); ; n++ {
		if (Unit(Mix(n)) < probeShare) == probe {
			return n
		}
	}
}

// TestASlowWorkerGetsFewProbes, also with so few requests that all others are idle for long.
func TestASlowWorkerGetsFewProbes(t *testing.T) {
	slow := loadedViews(0, 0)
	slow[0].Latency = LatencyFacts{Mean: 5, Samples: 20, Idle: 100}
	slow[1].Latency = LatencyFacts{Mean: 0.1, Samples: 20, Idle: 10}
	probes := 0
	for n := range uint64(1000) {
		if i, _ := newLeastLatency().Pick(&Request{Stream: true, Now: start, Rand: Mix(n + 1)}, slow); i == 0 {
			probes++
		}
	}
	if probes < 20 || probes > 90 {
		t.Errorf("of 1,000 streams %d were probes, want about 50", probes)
	}
}

// TestASpikeDoesNotExileAWorker: after one slow answer a worker is probed, and gets requests again.
func TestASpikeDoesNotExileAWorker(t *testing.T) {
	policy, err := New(Config{Name: "least_latency", Fallback: "round_robin"})
	if err != nil {
		t.Fatal(err)
	}
	pool := NewPool(policy, []Member{{ID: "a", Weight: 1}, {ID: "b", Weight: 1}})
	for _, id := range []string{"a", "b"} {
		pool.Observe(id, nil, Status{Up: true})
	}
	now, late := start, map[string]int{}
	for n := range 400 {
		r := Request{Now: now, Stream: true, Rand: Mix(uint64(n)), PromptTokens: 100}
		l, err := pool.Acquire(&r)
		if err != nil {
			t.Fatal(err)
		}
		id, took := l.Worker().ID(), 100*time.Millisecond
		if id == "a" && n > 40 && n < 60 {
			took = 5 * time.Second // the spike
		}
		if n > 300 {
			late[id]++
		}
		now = now.Add(took)
		l.Answered(now, nil)
		l.Release(Result{At: now, OutputTokens: 1})
		now = now.Add(time.Second)
	}
	if mean := pool.workers[0].latency.mean; late["a"] == 0 || mean > 0.15 {
		t.Errorf("the last 100 requests went to %v, and the average of a is %.2f s", late, mean)
	}
}

func TestKVOverlapScores(t *testing.T) {
	for name, c := range map[string]struct {
		config  Config
		loads   []int
		overlap []int64
		success []float64
		want    int
	}{
		"nothing in common":            {overlap: []int64{0, 0}, want: -1},
		"most of the prompt":           {overlap: []int64{300, 900}, want: 1},
		"load outweighs some overlap":  {overlap: []int64{400, 0}, loads: []int{4, 0}, want: 1},
		"and not most of it":           {overlap: []int64{900, 0}, loads: []int{4, 0}, want: 0},
		"health decides":               {overlap: []int64{500, 500}, success: []float64{0.5, 1}, want: 1},
		"no more than the least score": {config: Config{MinScore: new(0.95)}, overlap: []int64{900, 0}, want: -1},
		"more than the least score":    {config: Config{MinScore: new(0.93)}, overlap: []int64{900, 0}, want: 0},
		"only overlap":                 {config: Config{LoadWeight: new(0.0), HealthWeight: new(0.0)}, overlap: []int64{510, 500}, loads: []int{9, 0}, want: 0},
		"only load":                    {config: Config{OverlapWeight: new(0.0), MinScore: new(0.2)}, overlap: []int64{900, 100}, loads: []int{2, 1}, want: 1},
	} {
		ws := loadedViews(0, 0)
		if c.loads != nil {
			ws = loadedViews(c.loads...)
		}
		for i := range c.overlap {
			ws[i].Overlap = c.overlap[i]
		}
		for i := range c.success {
			ws[i].Success = c.success[i]
		}
		if i, reason := newKVOverlap(c.config).Pick(&Request{PromptTokens: 1000}, ws); i != c.want ||
			(i >= 0) != (reason == ReasonKVOverlap) {
			t.Errorf("%s: %d (%s), want %d", name, i, reason, c.want)
		}
	}
}

// TestRecordNamesThePolicyThatChose: the fallback's if the first one abstains, or the rule's.
func TestRecordNamesThePolicyThatChose(t *testing.T) {
	p, err := Compose(Config{Name: "consistent_hash", FallbackKey: "none", Fallback: "round_robin"},
		[]Config{{Name: "random"}, {Name: "least_latency"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		r      Request
		policy string
		reason Reason
	}{
		"a session":                {Request{Key: 1, KeyOf: KeySession}, "consistent_hash", ReasonSessionHome},
		"no session":               {Request{}, "round_robin", ReasonRoundRobin},
		"a rule":                   {Request{Rule: 1, Key: 1, KeyOf: KeySession}, "random", ReasonRandom},
		"a rule without a choice":  {Request{Rule: 2}, "least_latency", ReasonLeastLoad},
		"a rule that is not there": {Request{Rule: 3, Key: 1, KeyOf: KeySession}, "consistent_hash", ReasonSessionHome},
	} {
		ws := loadedViews(1, 2, 3)
		pool := Pool{policy: p, assessments: make([]assessment, len(ws))}
		c.r.Now, c.r.Record = start, &Choice{}
		i, reason := pool.pickLocked(&c.r, ws)
		if c.r.Record.Policy != c.policy || reason != c.reason || c.r.Record.Rule != c.r.Rule {
			t.Errorf("%s: %s chose %d (%s), want %s (%s)", name, c.r.Record.Policy, i, reason, c.policy, c.reason)
		}
	}
	if got := Reasons(Config{Name: "consistent_hash", Fallback: "round_robin"}, Config{Name: "random"}); len(got) != 9 {
		t.Errorf("the reasons are %v", got)
	}
}
