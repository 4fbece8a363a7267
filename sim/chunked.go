package sim

import (
	"cmp"
	"slices"
	"time"
)

// chunkScheduler computes steps of at most Chunk tokens: one token of each running answer, then
// prompts in the order of their arrival.
//
// Steps without a prompt are equal until an answer ends, so they are one event. A prompt that arrives
// during such steps is computed from the end of the current step on.
type chunkScheduler struct {
	engine  *engineState
	prompts []*job // not computed completely, in order of arrival
	running []*job // answers, the first one to end last
	step    int64  // steps computed so far

	// The steps in progress.
	began    time.Duration
	length   time.Duration // of one step
	steps    int64         // 0 while the engine is idle
	parts    []chunkPart   // of prompts; only if steps is 1
	planned  uint64        // number of the event that ends the steps; earlier ones are void
	finished bool          // the steps have ended and the next ones are not planned yet
}

// chunkPart is the part of a prompt that is computed in a step.
type chunkPart struct {
	job    *job
	tokens int64
}

func (s *chunkScheduler) waiting() (n int) {
	for _, j := range s.prompts {
		if !j.started {
			n++
		}
	}
	return n
}

func (s *chunkScheduler) accept(j *job) {
	s.prompts = append(s.prompts, j)
	switch {
	case s.finished: // begin is called next
	case s.steps == 0:
		s.begin()
	case s.steps > 1:
		elapsed := s.engine.simulation.now - s.began
		s.steps = max(1, int64((elapsed+s.length-1)/s.length))
		s.planEnd()
	}
}

// begin plans the next steps.
func (s *chunkScheduler) begin() {
	e := s.engine
	s.parts, s.steps = s.parts[:0], 0
	budget, inside := max(1, e.Chunk-int64(len(s.running))), len(s.running)
	tokens := int64(0)
	for _, j := range s.prompts {
		if tokens == budget || e.MaxSeqs > 0 && inside >= e.MaxSeqs {
			break
		}
		if !j.started {
			e.startPrefill(j)
		}
		part := min(budget-tokens, j.remaining)
		s.parts = append(s.parts, chunkPart{j, part})
		tokens += part
		inside++
	}
	switch {
	case tokens > 0:
		s.steps = 1
	case len(s.running) > 0:
		s.steps = s.running[len(s.running)-1].lastStep - s.step
	default:
		return // idle
	}
	s.began, s.length = e.simulation.now, e.noisy(e.step(tokens, len(s.running)))
	s.planEnd()
}

// step returns the time of one step of a chunked prefill.
func (e Engine) step(tokens int64, running int) time.Duration {
	return e.Step + time.Duration(running)*e.StepEach + time.Duration(float64(tokens)/e.Rate*float64(time.Second))
}

func (s *chunkScheduler) planEnd() {
	s.planned++
	number := s.planned
	s.engine.simulation.At(s.began+time.Duration(s.steps)*s.length, func() {
		if number == s.planned {
			s.finish()
		}
	})
}

// finish ends the steps in progress: some answers end, and some prompts get their first token.
func (s *chunkScheduler) finish() {
	e := s.engine
	s.step += s.steps
	s.finished = true
	for n := len(s.running) - 1; n >= 0 && s.running[n].lastStep <= s.step; n-- {
		j := s.running[n]
		s.running = s.running[:n]
		e.end(j)
		j.onEnd()
	}
	for _, p := range s.parts {
		if p.job.remaining -= p.tokens; p.job.remaining == 0 {
			s.decode(p.job)
		}
	}
	s.finished = false
	s.begin()
}

// decode starts the answer of a computed prompt, the oldest one.
func (s *chunkScheduler) decode(j *job) {
	s.prompts[0] = nil
	s.prompts = s.prompts[1:]
	s.engine.startDecode(j)
	if s.engine.endPrefillStage(j) {
		return
	}
	j.lastStep = s.step + max(1, j.request.OutputTokens)
	at, _ := slices.BinarySearchFunc(s.running, j.lastStep, func(other *job, last int64) int {
		return cmp.Compare(last, other.lastStep)
	})
	s.running = slices.Insert(s.running, at, j)
	j.onFirstToken()
}
