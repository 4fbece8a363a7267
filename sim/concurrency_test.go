package sim

import (
	"testing"
	"time"

	"tierway/routing"
)

// sharedPrompt returns a request with a system prompt of that number, a question of its own, and a short answer.
func sharedPrompt(d *RNG, number uint64, systemTokens int64) Request {
	r := Request{Chain: Extend(nil, number, systemTokens), OutputTokens: 40}
	r.Prefix = r.Chain[len(r.Chain)-1].Hash
	r.Chain = appendBlocks(r.Chain, d.Uint64(), BlockTokens)
	r.PromptTokens = int64(len(r.Chain)) * BlockTokens
	return r
}

// evenly returns n requests with one system prompt, at equal intervals: the number in flight hardly varies, so that
// they show little of the cost of concurrency.
func evenly(from time.Duration, rate float64, n int, number uint64, systemTokens int64) Trace {
	all, d := make([]Arrival, n), Split(number, 0)
	for i := range all {
		at := from + time.Duration(float64(i)/rate*float64(time.Second))
		all[i] = Arrival{At: at, Request: sharedPrompt(d, number, systemTokens)}
	}
	return Trace{Arrivals: all}
}

// twoWorkers returns the records of the requests that two equal engines serve under kv_aware.
func twoWorkers(t *testing.T, e Engine, loads ...Load) []*Record {
	t.Helper()
	return play(t, Config{Seed: 1, Engines: identical(2, e), Policy: routing.Config{Name: "kv_aware"}, Admission: Direct,
		Loads: loads, Choices: true}).Records
}

// fewest returns the share of the requests on the engine with the fewest, and the median of their whole times.
func fewest(all []*Record) (share float64, median time.Duration) {
	first, whole := 0, Times{}
	for _, rec := range all {
		if rec.Worker == "e0" {
			first++
		}
		whole = append(whole, rec.Done-rec.SubmittedAt)
	}
	whole.Sort()
	return float64(min(first, len(all)-first)) / float64(len(all)), whole.Quantile(0.5)
}

// TestSecondWorkerSharesAPrefixBeforeConcurrencyIsLearned: alone, one worker has a median of 1.01 s at 12 requests/s.
func TestSecondWorkerSharesAPrefixBeforeConcurrencyIsLearned(t *testing.T) {
	var b table
	b.row("requests/s", "requests", "on the second worker", "median time")
	for _, c := range []struct {
		rate  float64
		share float64 // of the second worker, at least
		most  time.Duration
	}{{1, 0, time.Second}, {8, 0, time.Second}, {12, 0.25, 920 * time.Millisecond}, {16, 0.25, 950 * time.Millisecond},
		{20, 0.25, 980 * time.Millisecond}} {
		all := twoWorkers(t, Engine{}, evenly(0, c.rate, int(20*c.rate), 1, 4096))
		share, median := fewest(all)
		b.row(c.rate, len(all), share*float64(len(all)), median)
		if share < c.share || median > c.most {
			t.Errorf("%v requests/s: the second worker has %.0f %% of them, and the median is %s", c.rate, 100*share, median)
		}
	}
	b.log(t, "two equal engines, and a prefix of 4,096 tokens")
}

// TestOneWorkerServesAPrefixIfRequestsDoNotOverlap: a second copy of the prefix would cost a prefill for nothing.
func TestOneWorkerServesAPrefixIfRequestsDoNotOverlap(t *testing.T) {
	for _, systemTokens := range []int64{256, 1024, 4096} {
		if share, _ := fewest(twoWorkers(t, Engine{}, evenly(0, 1, 60, 1, systemTokens))); share > 0 {
			t.Errorf("a prefix of %d tokens: the second worker has %.0f %% of the requests", systemTokens, 100*share)
		}
	}
}

// TestHundredAnswersOutweighThePriorOfConcurrency: a second worker gets a copy of a new prefix if the learned cost of
// concurrency is worth its prefill, whatever the prior says.
func TestHundredAnswersOutweighThePriorOfConcurrency(t *testing.T) {
	const (
		learned = 12 * time.Second       // the answers to the first load have ended
		step    = 25 * time.Millisecond  // the prior of a step
		prior   = 312 * time.Microsecond // that each further request adds to it
	)
	for _, c := range []struct {
		name         string
		each         time.Duration // that each further request adds to a step
		systemTokens int64
		least, most  float64 // bounds of the learned milliseconds
		shared       bool
	}{
		{"as the prior, short prefix", prior, 1024, 0.28, 0.35, true},
		{"free, short prefix", 1, 1024, 0, 0.15, false},
		{"as the prior, long prefix", prior, 4096, 0.28, 0.35, false},
		{"six times the prior, long prefix", 6 * prior, 4096, 1.6, 2.2, true},
	} {
		engine, d := Engine{Step: step, StepEach: c.each}, Split(3, 0)
		first := Poisson{Rate: 12, Until: learned - 3*time.Second,
			Make: func(*RNG, int) Request { return sharedPrompt(d, 1, 1024) }}
		all := twoWorkers(t, engine, first, evenly(learned, 12, 60, 2, c.systemTokens))
		answers, later := len(all)-60, all[len(all)-60:]
		share, _ := fewest(later)
		each := 1000 * later[0].Choice.Candidates[0].Cost.StepEach
		if each < c.least || each > c.most || share > 0 != c.shared || answers > 120 {
			t.Errorf("%s: after %d answers, a further request adds %.2f ms to a step, and the second worker gets %.0f %%",
				c.name, answers, each, 100*share)
		}
	}
}
