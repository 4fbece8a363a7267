package sim

import (
	"time"
)

// Engine is one simulated inference engine: prompts are prefilled one after the
// other, answers are decoded together, the more at once the slower, and the
// blocks of what was computed stay in a cache as long as there is room. Its
// zero values are the engine that the figures of the project's reference are
// made with: a model of some 8 billion parameters on one data-centre GPU.
//
//	prefill = uncached tokens / (Rate · max(0.3, 1 − 0.004·running)) + 8 ms
//	decode  = tokens · (Step + StepEach·running)
//
// where running is how many answers are decoded there as the prefill, or this
// decode, begins, itself counted in the latter. A prompt's leading blocks that
// are in the cache need no prefill, all but its last token.
type Engine struct {
	Name        string        // its worker's ID; empty is its place among the engines: e0, e1 …
	Rate        float64       // prefill while nothing is decoded, tokens/s; 0 is 10,000
	Step        time.Duration // per output token; 0 is 20 ms
	StepEach    time.Duration // more of it for each running answer; 0 is 0.4 ms
	CacheTokens int64         // 0 is 300,000; negative is no cache
	MaxSeqs     int           // answers that run at once, the one in prefill counted; others wait in the engine. 0 is no bound

	// What the gateway is configured with.
	Weight            int   // 0 is 1
	MaxInflight       int   // 0 leaves it to what the pool learns
	MaxTokensInflight int64 // 0 is no bound
	Models            []uint64
}

const (
	// prefillStep is the part of each prefill that its tokens do not explain.
	prefillStep = 8 * time.Millisecond
	// slowdown is the part of the prefill rate that each running answer takes, and
	// slowest the part that is left whatever runs.
	slowdown, slowest = 0.004, 0.3
)

// filled returns the engine with its defaults in place of zeros.
func (e Engine) withDefaults() Engine {
	if e.Rate == 0 {
		e.Rate = 10_000
	}
	if e.Step == 0 {
		e.Step = 20 * time.Millisecond
	}
	if e.StepEach == 0 {
		e.StepEach = 400 * time.Microsecond
	}
	if e.CacheTokens == 0 {
		e.CacheTokens = 300_000
	}
	e.Weight = max(1, e.Weight)
	return e
}

// Prefill returns how long the engine computes so many tokens of a prompt while
// so many answers are running.
func (e Engine) Prefill(tokens int64, running int) time.Duration {
	rate := e.withDefaults().Rate * max(slowest, 1-slowdown*float64(running))
	return time.Duration(float64(tokens)/rate*float64(time.Second)) + prefillStep
}

// Decode returns how long an answer of so many tokens takes from its first token
// on while so many are running, itself among them.
func (e Engine) Decode(tokens int64, running int) time.Duration {
	e = e.withDefaults()
	return time.Duration(tokens) * (e.Step + time.Duration(running)*e.StepEach)
}

// Service returns how long a request takes from the moment that the engine
// begins with it, of which so many prompt tokens are in no cache and so many
// answers are running, itself among them.
func (e Engine) Service(uncached, output int64, running int) time.Duration {
	return e.Prefill(uncached, running-1) + e.Decode(output, running)
}

// job is a request inside an engine.
type job struct {
	request      *Request
	cached       int64  // tokens of the prompt; set when its prefill begins
	onFirstToken func() // at the first token
	onEnd        func()
}

// running is an engine in a world.
type engineState struct {
	Engine
	world          *World
	cache          *cache
	waiting        []*job // for their prefill
	prefilled      *job   // nil while no prompt is
	decoding       int
	residentTokens int64 // tokens of all that is inside, for the share of the cache in use

	inside, most int // requests sent here and not ended, now and at most
}

func newEngineState(e Engine, w *World) *engineState {
	return &engineState{Engine: e, world: w, cache: newCache(int(max(0, e.CacheTokens) / BlockTokens))}
}

// take gives the engine a job.
func (e *engineState) accept(j *job) {
	e.residentTokens += j.request.PromptTokens + j.request.OutputTokens
	e.waiting = append(e.waiting, j)
	e.startPrefill()
}

// next begins the prefill of the job that came first, if it may.
func (e *engineState) startPrefill() {
	if e.prefilled != nil || len(e.waiting) == 0 || e.MaxSeqs > 0 && e.decoding >= e.MaxSeqs {
		return
	}
	j := e.waiting[0]
	e.waiting[0] = nil
	e.waiting, e.prefilled = e.waiting[1:], j
	// The last token is computed in any case: the first of the answer comes of it.
	hits := int64(e.cache.hits(j.request.Prompt())) * BlockTokens
	j.cached = max(0, min(hits, (j.request.PromptTokens-1)/BlockTokens*BlockTokens))
	e.world.After(e.Prefill(j.request.PromptTokens-j.cached, e.decoding), func() { e.startDecode(j) })
}

// answer ends a prefill and begins the decode.
func (e *engineState) startDecode(j *job) {
	e.prefilled = nil
	e.cache.store(j.request.Prompt())
	e.decoding++
	e.world.After(e.Decode(j.request.OutputTokens, e.decoding), func() { e.end(j) })
	j.onFirstToken()
	e.startPrefill()
}

func (e *engineState) end(j *job) {
	e.decoding--
	e.residentTokens -= j.request.PromptTokens + j.request.OutputTokens
	e.cache.store(j.request.answer())
	e.startPrefill()
	j.onEnd()
}
