package liveness

import (
	"hash/fnv"
	"io"
	"iter"
	"slices"
	"sync"
	"time"
)

const (
	// blockBytes is the size of a block of the prefix cache: 64 tokens.
	blockBytes = 64 * bytesPerToken
	// bytesPerToken is the length of a token, as tokenizers have it for English text.
	bytesPerToken = 4
	// eventTokens is the number of tokens of an event after the first, as vLLM's --stream-interval sets
	// it. Fewer events need less processor time.
	eventTokens = 8
	// fullBatch is the number of running requests at which a step takes twice the time of an empty batch.
	fullBatch = 64
	// maxRunning is vLLM's --max-num-seqs.
	maxRunning = 256
	// stepTokens is the number of prompt tokens that a step admits, as vLLM's --max-num-batched-tokens. A
	// longer prompt has a step of its own.
	stepTokens = 8192
)

// engineConfig is the speed of an engine.
type engineConfig struct {
	prefill   float64       // tokens per second of prompts that are not cached
	step      time.Duration // of one request; a step generates one token of each running request
	noMetrics bool          // as engines other than vLLM: no load, no counters
}

// usualEngine answers a request of the load in 0.7 s, of which the prefill needs 0.1 s without a cache.
func usualEngine() engineConfig { return engineConfig{prefill: 5000, step: 25 * time.Millisecond} }

// slower returns an engine that needs factor times as long for everything.
func (c engineConfig) slower(factor float64) engineConfig {
	c.prefill, c.step = c.prefill/factor, time.Duration(float64(c.step)*factor)
	return c
}

// silent returns the engine without metrics.
func (c engineConfig) silent() engineConfig {
	c.noMetrics = true
	return c
}

// job is a request in an engine.
type job struct {
	text      string
	want, got int      // tokens of the answer
	cached    int      // tokens of the prompt that were cached
	events    chan int // tokens of each event; closed at the end; it has room for all
	whole     bool     // the answer has one event
	gone      bool     // the client has left; guarded by the engine's mutex
}

// engine is the core of a vLLM engine: a loop of steps. In a step each running request gets a token, and
// waiting requests are admitted with whole prompts, without chunks. So a long prompt delays all others, and
// nothing is published meanwhile. It is safe for concurrent use.
type engine struct {
	config engineConfig

	mu               sync.Mutex // guards the rest
	changed          sync.Cond  // its L is mu
	waiting, running []*job
	cache            map[uint64]bool // chain hashes of cached blocks
	counters         gauges          // only the counters
	published        gauges          // at the end of the last step
	asleep           bool            // as POST /sleep reports it
	stopped          bool            // no step begins or ends
	stopWhen         func() bool     // checked after each step; true stops the steps; nil: never
	stoppedAt        time.Time       // of the last stop
	closed           bool
}

// gauges are what an engine reports of itself.
type gauges struct {
	running, waiting, kvTokens    int
	prompt, generated, iterations int
}

func newEngine(c engineConfig) *engine {
	e := &engine{config: c, cache: map[uint64]bool{}}
	e.changed.L = &e.mu
	return e
}

// run runs the steps until close.
func (e *engine) run() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for {
		for !e.closed && (e.stopped || !e.hasWorkLocked()) {
			e.changed.Wait()
		}
		if e.closed {
			return
		}
		d := e.beginStepLocked()
		e.mu.Unlock()
		time.Sleep(d)
		e.mu.Lock()
		for e.stopped && !e.closed { // a step that has begun does not end
			e.changed.Wait()
		}
		e.endStepLocked()
	}
}

// update changes the engine and wakes its loop.
func (e *engine) update(change func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change()
	e.changed.Broadcast()
}

func (e *engine) close() { e.update(func() { e.closed = true }) }

// submit adds a request. The answer's events arrive on its channel.
func (e *engine) submit(j *job) {
	j.events = make(chan int, j.want/eventTokens+2)
	e.update(func() { e.waiting = append(e.waiting, j) })
}

// abort removes a request whose client has left, before the next step.
func (e *engine) abort(j *job) { e.update(func() { j.gone = true }) }

// stop stops the steps as soon as condition holds, now or at the end of a step. The condition reads the
// published gauges; nil always holds.
func (e *engine) stop(condition func(gauges) bool) {
	e.update(func() {
		e.stopWhen = func() bool { return condition == nil || condition(e.published) }
		e.checkStopLocked()
	})
}

// resume continues the steps.
func (e *engine) resume() {
	e.update(func() { e.stopped, e.stopWhen = false, nil })
}

func (e *engine) checkStopLocked() {
	if e.stopWhen != nil && !e.stopped && e.stopWhen() {
		e.stopped, e.stoppedAt = true, time.Now()
	}
}

// hasWorkLocked reports whether there are requests whose clients wait. If only others were left, their
// removal is published, as after vLLM's step without tokens.
func (e *engine) hasWorkLocked() bool {
	if e.removeGoneLocked() && len(e.waiting)+len(e.running) == 0 {
		e.publishLocked()
	}
	return len(e.waiting)+len(e.running) > 0
}

// removeGoneLocked removes the requests whose clients have left, and reports whether there were any.
func (e *engine) removeGoneLocked() bool {
	before := len(e.waiting) + len(e.running)
	gone := func(j *job) bool { return j.gone }
	e.waiting, e.running = slices.DeleteFunc(e.waiting, gone), slices.DeleteFunc(e.running, gone)
	return len(e.waiting)+len(e.running) < before
}

// beginStepLocked admits waiting requests and returns the time of the step.
func (e *engine) beginStepLocked() time.Duration {
	uncached := 0
	for len(e.waiting) > 0 && len(e.running) < maxRunning {
		j := e.waiting[0]
		tokens := len(j.text) / bytesPerToken
		j.cached = e.cachedLocked(j.text)
		if uncached > 0 && uncached+tokens-j.cached > stepTokens {
			break
		}
		e.storeLocked(j.text)
		e.waiting = e.waiting[1:]
		uncached += tokens - j.cached
		e.counters.prompt += tokens
		e.running = append(e.running, j)
	}
	batch := 1 + float64(len(e.running)-1)/fullBatch
	return time.Duration(float64(e.config.step)*batch + float64(uncached)/e.config.prefill*float64(time.Second))
}

// endStepLocked generates a token of each running request and publishes the gauges.
func (e *engine) endStepLocked() {
	e.removeGoneLocked()
	e.running = slices.DeleteFunc(e.running, func(j *job) (done bool) {
		j.got++
		e.counters.generated++
		done = j.got >= j.want
		if done || !j.whole && (j.got == 1 || j.got%eventTokens == 0) {
			j.events <- j.got
		}
		if done {
			close(j.events)
		}
		return done
	})
	e.counters.iterations++
	e.publishLocked()
}

// publishLocked publishes the gauges, and stops the steps if they must stop now.
func (e *engine) publishLocked() {
	e.published = e.counters
	e.published.running, e.published.waiting = len(e.running), len(e.waiting)
	for _, j := range e.running {
		e.published.kvTokens += len(j.text)/bytesPerToken + j.got
	}
	e.checkStopLocked()
}

// cachedLocked returns how many tokens of a prompt are cached.
func (e *engine) cachedLocked(text string) (tokens int) {
	for h := range blocks(text) {
		if !e.cache[h] {
			break
		}
		tokens += blockBytes / bytesPerToken
	}
	return tokens
}

// storeLocked caches the blocks of a prompt.
func (e *engine) storeLocked(text string) {
	for h := range blocks(text) {
		e.cache[h] = true
	}
}

// blocks returns the chain hashes of the whole blocks of a prompt.
func blocks(text string) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		chain := fnv.New64a()
		for i := blockBytes; i <= len(text); i += blockBytes {
			io.WriteString(chain, text[i-blockBytes:i]) // never fails
			if !yield(chain.Sum64()) {
				return
			}
		}
	}
}
