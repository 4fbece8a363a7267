package queue

import (
	"testing"
	"time"

	"tierway/routing"
)

// TestRequestsOfAFullWorkerDoNotBlockOthers: however many requests wait for a full worker, a
// request behind them whose worker is idle is dispatched.
func TestRequestsOfAFullWorkerDoNotBlockOthers(t *testing.T) {
	size := map[string]func(i int) int64{
		"of one size":              func(int) int64 { return 10 },
		"each longer than before":  func(i int) int64 { return int64(i + 1) },
		"each shorter than before": func(i int) int64 { return int64(5000 - i) },
	}
	for named, tokens := range size {
		for _, waiting := range []int{1, 256, 4000} {
			r := newModelRig(t, usual(), 2)
			r.mustGo(r.of(1, 0, "a", 10))
			r.mustGo(r.of(2, 0, "a", 10))
			for i := range waiting {
				r.mustWait(r.of(1, 0, "a", tokens(i)))
			}
			behind := r.mustWait(r.of(2, 2, "b", 10))
			if got := r.end(r.underWay(2)); len(got) != 1 || got[0] != behind {
				t.Fatalf("behind %d requests, %s: %v were granted the free slot, want %s", waiting, named, ids(got), behind.ID)
			}
			r.end(behind)
			r.mustGo(r.of(2, 1, "c", 10)) // also on entering
			r.check()
		}
	}
}

// TestRequestsOfManyFullWorkersDoNotBlockOthers has as many models as a large pool.
func TestRequestsOfManyFullWorkersDoNotBlockOthers(t *testing.T) {
	const models = 12
	r := newModelRig(t, usual(), models)
	for model := range uint64(models) {
		r.mustGo(r.of(model+1, 0, "a", 10))
	}
	for range 1000 {
		r.mustWait(r.of(1+uint64(r.rng.below(models-1)), 0, "a", int64(1+r.rng.below(10_000))))
	}
	behind := r.mustWait(r.of(models, 2, "b", 10))
	if got := r.end(r.underWay(models)); len(got) != 1 || got[0] != behind {
		t.Errorf("%v were granted the free slot, want %s", ids(got), behind.ID)
	}
	r.check()
}

// TestFollowUpsOfAFullWorkerDoNotBlockOthers: requests that may go to one worker only, because
// it stores what they refer to, or because they have tried the others.
func TestFollowUpsOfAFullWorkerDoNotBlockOthers(t *testing.T) {
	for _, named := range []string{"for one worker only", "others are tried"} {
		r := newRig(t, usual(), 2, 1)
		filled := r.fill(2)
		for i := range filled {
			if w := r.held[filled[i]]; w.Ref() == 0 {
				filled[0], filled[1] = filled[i], filled[1-i]
				break
			}
		}
		for range 300 {
			tk := r.ticket(0, "a", 10)
			if named == "others are tried" {
				tk.Tried = []*routing.Worker{r.held[filled[1]].Worker()}
			} else {
				tk.Request.Only = 0
			}
			r.mustWait(tk)
		}
		behind := r.mustWait(r.ticket(2, "b", 10))
		if got := r.end(filled[1]); len(got) != 1 || got[0] != behind {
			t.Errorf("%s: %v were granted the free slot, want %s", named, ids(got), behind.ID)
		}
		r.check()
	}
}

// TestAgedRequestsOfAFullWorkerTakeNoSlotElsewhere: aged batch requests wait for a full worker.
// The interactive requests of the other worker are dispatched as if they were alone, and no
// credit accumulates.
func TestAgedRequestsOfAFullWorkerTakeNoSlotElsewhere(t *testing.T) {
	for _, stuck := range []int{1, 200, 300} {
		c := usual()
		c.Age = [Classes]time.Duration{1: 10 * time.Second, 2: 30 * time.Second}
		r := newModelRig(t, c, 2)
		r.mustGo(r.of(1, 2, "x", 100))
		for range stuck {
			r.mustWait(r.of(1, 2, "x", 100))
		}
		r.mustGo(r.of(2, 0, "y", 100))
		for range 20 {
			r.mustWait(r.of(2, 0, "y", 100))
		}
		r.pass(time.Minute)
		for i := range 1500 {
			if tk := r.nextOf(2); tk.Class != 0 {
				t.Fatalf("%d stuck: grant %d went to class %d", stuck, i, tk.Class)
			}
			r.mustWait(r.of(2, 0, "y", 100))
		}
		for range 100 {
			r.mustWait(r.of(2, 2, "z", 100))
		}
		r.pass(time.Minute)
		batch := 0
		for range 100 {
			tk := r.nextOf(2)
			if tk.Class == 2 {
				batch++
			} else {
				r.mustWait(r.of(2, 0, "y", 100))
			}
		}
		if batch < 18 || batch > 22 {
			t.Errorf("%d stuck: of the first 100 grants %d went to aged requests that can go, want their share of 20", stuck,
				batch)
		}
		r.check()
	}
}

// TestNoRequestIsShedBesideAnIdleWorker: nor evicted for a request that can be dispatched at
// once.
func TestNoRequestIsShedBesideAnIdleWorker(t *testing.T) {
	bounds := map[string]func(*Config){
		ShedDepth:    func(c *Config) { c.MaxDepth = 3 },
		ShedBytes:    func(c *Config) { c.MaxBytes = 300 },
		ShedDeadline: func(c *Config) { c.MaxWait[0] = 14 * time.Second },
	}
	for reason, bound := range bounds {
		for _, displace := range []bool{false, true} {
			c := usual()
			c.Displace = displace
			bound(&c)
			r := newModelRig(t, c, 2)
			for range 20 { // a request takes 5 s
				tk := r.mustGo(r.of(1, 0, "a", 10))
				r.now = r.now.Add(5 * time.Second)
				r.end(tk)
			}
			r.mustGo(r.of(1, 0, "a", 10))
			for range 3 {
				r.mustWait(r.of(1, 0, "a", 10))
			}
			if got := shedFor(r.enter(r.of(1, 0, "a", 10))); got != reason {
				t.Errorf("displace %v: one more for the full worker was shed for %q, want %q", displace, got, reason)
			}
			before := r.tally()
			r.mustGo(r.of(2, 0, "b", 10))
			if after := r.tally(); after != before {
				t.Errorf("%s, displace %v: after one has gone at once the queue counts %+v, before %+v", reason, displace, after,
					before)
			}
			r.check()
		}
	}
}

// TestNoRequestIsEvictedInVain: a newcomer that would still not fit, or only after many
// evictions, is shed alone.
func TestNoRequestIsEvictedInVain(t *testing.T) {
	const kilo = 1000
	for named, test := range map[string]struct {
		class int   // of the waiting requests
		bytes int64 // size of the newcomer
	}{
		"larger than the whole queue":              {class: 2, bytes: 20 * kilo},
		"bytes of more urgent requests":            {class: 0, bytes: 9 * kilo},
		"17 evictions, one more than the limit":    {class: 2, bytes: 6700},
		"more than a few of its own class as well": {class: 1, bytes: 9 * kilo},
	} {
		c := usual()
		c.Displace, c.MaxBytes = true, 10*kilo
		r := newRig(t, c, 1, 1)
		r.fill(1)
		for range 50 { // 5,000 bytes
			r.mustWait(r.ticket(test.class, "a", 1))
		}
		big := r.ticket(min(test.class, 1), "b", 1)
		big.Bytes = test.bytes
		if got := shedFor(r.enter(big)); got != ShedBytes || len(r.woken) != 0 {
			t.Errorf("%s: shed for %q, and %d were evicted, want %q and none", named, got, len(r.woken), ShedBytes)
		}
		if got := r.queue.Waiting(); got != 50 {
			t.Errorf("%s: %d wait, want 50", named, got)
		}
		r.check()
	}
}

// TestRequestThatWaitsForACacheIsDispatchedInTime: it goes to another worker at half of its
// wait limit at the latest, and is not shed beside an idle worker.
func TestRequestThatWaitsForACacheIsDispatchedInTime(t *testing.T) {
	for _, listens := range []time.Duration{0, 4 * time.Second, time.Minute} {
		c := usual()
		c.MaxWait[0] = 10 * time.Second
		r := newRig(t, c, 2, 1)
		r.configure("chwbl", members(2, 1)...)
		first := r.mustGo(r.chat(200))
		r.held[first].Answered(r.now.Add(time.Second), nil)
		second, may := r.chat(201), c.MaxWait[0] // 51,200 tokens of it are cached: more than 6 s of prefill
		if listens > 0 {
			second.Deadline, may = r.now.Add(listens), min(may, listens)
		}
		r.mustWait(second)
		if got := r.pass(may/2 - time.Millisecond); len(got) != 0 {
			t.Errorf("deadline %s: before half of its time is over %v went to the idle worker", listens, ids(got))
		}
		if got := r.pass(time.Millisecond); len(got) != 1 || got[0] != second {
			t.Errorf("deadline %s: when half of its time is over %v went, want %s", listens, ids(got), second.ID)
		}
		r.check()
	}
}
