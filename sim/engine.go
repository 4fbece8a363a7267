package sim

import (
	"slices"
	"time"

	"tierway/routing"
)

// Engine is one simulated inference engine. It decodes answers together (the more at once, the
// slower), and caches computed blocks while there is room. The leading blocks of a prompt that
// are cached need no prefill, except for its last token. Its zero values are the engine of the
// reference figures: a model of some 8 billion parameters on one data-centre GPU.
//
// Without Chunk it prefills whole prompts one after the other, beside the decodes:
//
//	prefill = uncached tokens / (Rate · max(0.3, 1 − 0.004·running)) + 8 ms
//	decode  = tokens · (Step + StepEach·running)
//
// running is the number of answers that are decoded when the prefill or the decode starts; a
// decode counts itself.
//
// With Chunk it computes steps of at most that many tokens, as engines with chunked prefill do:
// one token of each running answer, then prompts in the order of arrival. Long prompts are
// computed in several steps, and slow the answers down.
//
//	step = Step + StepEach·running + prompt tokens / Rate
type Engine struct {
	Name        string        // ID of its worker; empty: its index, e0, e1 …
	Rate        float64       // prefill rate in tokens/s while nothing is decoded; 0: 10,000
	Step        time.Duration // per output token; 0: 20 ms
	StepEach    time.Duration // added to Step per running answer; 0: 0.4 ms
	Chunk       int64         // tokens of a step, such as 2,048; 0: prompts are prefilled whole
	CacheTokens int64         // 0: 300,000; negative: no cache
	// ReportedTokens is the size of the cache in the engine's metrics; 0: the real one; negative: none.
	ReportedTokens int64
	// Noise is the standard deviation of the logarithm of a random factor, which multiplies the time of each
	// prefill and each answer, and with Chunk of each run of equal steps. 0: the times are exact.
	Noise float64
	// MaxSeqs is how many answers run at once, including the one in prefill; others wait in the
	// engine. 0: unbounded.
	MaxSeqs int
	// Stages are what it serves with Config.Handover; without one it serves whole requests.
	Stages routing.Stages

	// Configuration of the gateway.
	Weight            int   // 0: 1
	MaxInflight       int   // 0: the pool learns a limit
	MaxTokensInflight int64 // 0: unbounded
	Models            []uint64
}

const (
	// prefillStep is the constant part of each prefill.
	prefillStep = 8 * time.Millisecond
	// slowdown is the part of the prefill rate that each running answer takes, and slowest is
	// the lowest remaining part.
	slowdown, slowest = 0.004, 0.3
)

// withDefaults returns the engine with defaults in place of zeros.
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
	if e.ReportedTokens == 0 {
		e.ReportedTokens = e.CacheTokens
	}
	e.Weight = max(1, e.Weight)
	return e
}

// Prefill returns the time to compute that number of prompt tokens while running answers are
// decoded.
func (e Engine) Prefill(tokens int64, running int) time.Duration {
	rate := e.withDefaults().Rate * max(slowest, 1-slowdown*float64(running))
	return time.Duration(float64(tokens)/rate*float64(time.Second)) + prefillStep
}

// Decode returns the time of an answer of that number of tokens from its first token on. running
// is the number of answers that are decoded at once, including itself.
func (e Engine) Decode(tokens int64, running int) time.Duration {
	e = e.withDefaults()
	return time.Duration(tokens) * (e.Step + time.Duration(running)*e.StepEach)
}

// Service returns the time of a request from the start of its prefill. uncached is the number of
// prompt tokens to compute, and running the number of answers, including its own.
func (e Engine) Service(uncached, output int64, running int) time.Duration {
	return e.Prefill(uncached, running-1) + e.Decode(output, running)
}

// job is a request inside an engine.
type job struct {
	request      *Request
	cached       int64  // cached prompt tokens; set when the prefill starts
	onFirstToken func() // called at the first token
	onEnd        func()

	remaining int64 // prompt tokens to compute; set when the prefill starts
	lastStep  int64 // with Chunk: the step that computes its last token
	started   bool  // the prefill has started
	startedAt time.Duration
	computed  bool  // another engine has computed the prompt, except for its last token
	expected  int64 // cached prompt tokens, as expected at its arrival
}

// scheduler decides which prompts and answers an engine computes, and when.
type scheduler interface {
	accept(j *job)
	waiting() int // number of jobs before their prefill
	// timeToFirst returns the time until the request's first token if it is accepted now.
	timeToFirst(r *Request) time.Duration
}

// engineState is an engine in a simulation.
type engineState struct {
	Engine
	simulation     *Simulation
	rng            *RNG // of Noise
	cache          *cache
	scheduler      scheduler
	decoding       int
	residentTokens int64 // tokens of all jobs in the engine, for the used share of the cache
	engineCounts
	perfect
	at int // its index

	inside, maxInside int // requests that were sent here and have not ended: now, and the maximum
}

func newEngineState(e Engine, w *Simulation, at int) *engineState {
	const noise = 1 << 33 // above the numbers of all loads and of the gateway
	s := &engineState{
		Engine: e, simulation: w, at: at, rng: Split(w.config.Seed, noise+uint64(at)),
		cache: newCache(int(max(0, e.CacheTokens) / w.config.BlockTokens)),
	}
	if e.Chunk > 0 {
		s.scheduler = &chunkScheduler{engine: s}
	} else {
		s.scheduler = &promptScheduler{engine: s}
	}
	return s
}

// noisy returns the time with the engine's noise.
func (e *engineState) noisy(d time.Duration) time.Duration {
	if e.Noise == 0 {
		return d
	}
	return max(1, time.Duration(e.rng.Lognormal(float64(d), e.Noise)))
}

// enter counts a request that a gateway sends here.
func (e *engineState) enter() {
	e.inside++
	e.maxInside = max(e.maxInside, e.inside)
}

// accept gives the engine a job.
func (e *engineState) accept(j *job) {
	e.residentTokens += j.request.PromptTokens + j.request.OutputTokens
	e.change(e.simulation.now).queue++
	e.addAhead(j)
	e.scheduler.accept(j)
}

// startPrefill looks up the prompt's cached blocks. The last token is always computed: it yields
// the first token of the answer.
func (e *engineState) startPrefill(j *job) {
	j.started, j.startedAt = true, e.simulation.now
	l := e.change(e.simulation.now)
	l.queue--
	l.tokens += j.request.PromptTokens
	if j.cached = e.hitTokens(j.request, e.cache.hits(j.request.promptNumbers())); j.computed {
		j.cached = j.request.PromptTokens - 1
	}
	j.remaining = j.request.PromptTokens - j.cached
}

// hitTokens returns the tokens of that many leading blocks that need no prefill.
func (e *engineState) hitTokens(r *Request, blocks int) int64 {
	block := e.simulation.config.BlockTokens
	return max(0, min(int64(blocks), (r.PromptTokens-1)/block)) * block
}

// startDecode ends a prefill.
func (e *engineState) startDecode(j *job) {
	e.cache.store(j.request.promptNumbers())
	e.removeAhead(j)
	e.decoding++
}

// endPrefillStage ends a job without an answer, which another engine generates, and reports whether j is one.
func (e *engineState) endPrefillStage(j *job) bool {
	if j.request.OutputTokens > 0 {
		return false
	}
	e.end(j)
	j.onFirstToken()
	j.onEnd()
	return true
}

func (e *engineState) end(j *job) {
	e.decoding--
	e.change(e.simulation.now).tokens -= j.request.PromptTokens
	e.residentTokens -= j.request.PromptTokens + j.request.OutputTokens
	e.cache.store(j.request.answerNumbers())
}

// promptScheduler prefills whole prompts, one after the other.
type promptScheduler struct {
	engine    *engineState
	jobs      []*job // waiting for their prefill, in order of arrival
	prefilled *job   // nil while no prompt is prefilled

	prefillEnd time.Duration
	ends       []time.Duration // of running answers, the latest first
}

func (s *promptScheduler) waiting() int { return len(s.jobs) }

func (s *promptScheduler) accept(j *job) {
	s.jobs = append(s.jobs, j)
	s.next()
}

// next starts the prefill of the oldest waiting job if the engine is free.
func (s *promptScheduler) next() {
	e := s.engine
	if s.prefilled != nil || len(s.jobs) == 0 || e.MaxSeqs > 0 && e.decoding >= e.MaxSeqs {
		return
	}
	j := s.jobs[0]
	s.jobs[0] = nil
	s.jobs, s.prefilled = s.jobs[1:], j
	e.startPrefill(j)
	s.prefillEnd = e.simulation.now + e.noisy(e.Prefill(j.remaining, e.decoding))
	e.simulation.At(s.prefillEnd, func() { s.decode(j) })
}

// decode ends a prefill and starts the decode.
func (s *promptScheduler) decode(j *job) {
	e := s.engine
	s.prefilled = nil
	e.startDecode(j)
	if e.endPrefillStage(j) {
		s.next()
		return
	}
	end := e.simulation.now + e.noisy(e.Decode(j.request.OutputTokens, e.decoding))
	at, _ := slices.BinarySearchFunc(s.ends, end, func(other, end time.Duration) int { return int(end - other) })
	s.ends = slices.Insert(s.ends, at, end)
	e.simulation.At(end, func() {
		s.ends = s.ends[:len(s.ends)-1]
		e.end(j)
		s.next()
		j.onEnd()
	})
	j.onFirstToken()
	s.next()
}
