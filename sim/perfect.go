package sim

import (
	"slices"
	"time"
)

// perfect predicts an engine's first tokens from its real state: the prompts ahead, their real
// lengths and answers, and the real content of the cache. It ignores evictions and arrivals
// between now and the first token, and assumes that the prompts ahead are cached by then.
type perfect struct {
	ahead []uint16 // by the block's number: prompts that wait in the engine or are computed
	ends  []int64  // buffer: the ends of running answers, as times or steps of the scheduler, the latest first
}

// expect returns the prompt tokens that the engine will have cached when it starts the request.
func (e *engineState) expect(r *Request) int64 {
	numbers := r.promptNumbers()
	for i, number := range numbers {
		if !e.cache.has(number) && (int(number) >= len(e.ahead) || e.ahead[number] == 0) {
			return e.hitTokens(r, i)
		}
	}
	return e.hitTokens(r, len(numbers))
}

// addAhead counts a prompt that the engine has accepted, and removeAhead removes it when its blocks are
// cached.
func (e *engineState) addAhead(j *job) {
	if !e.simulation.knowledge.queues {
		return
	}
	j.expected = e.expect(j.request)
	if missing := len(e.simulation.numbers) - len(e.ahead); missing > 0 {
		e.ahead = append(e.ahead, make([]uint16, missing+len(e.ahead)/2)...)
	}
	for _, number := range j.request.promptNumbers() {
		e.ahead[number]++
	}
}

func (e *engineState) removeAhead(j *job) {
	if !e.simulation.knowledge.queues {
		return
	}
	for _, number := range j.request.promptNumbers() {
		e.ahead[number]--
	}
}

// addEnd adds the end of a running answer, and dropEnds removes the ends up to now. The latest comes first.
func (p *perfect) addEnd(end int64) {
	at, _ := slices.BinarySearchFunc(p.ends, end, func(other, end int64) int { return int(end - other) })
	p.ends = slices.Insert(p.ends, at, end)
}

func (p *perfect) dropEnds(now int64) {
	for n := len(p.ends); n > 0 && p.ends[n-1] <= now; n-- {
		p.ends = p.ends[:n-1]
	}
}

// timeToFirst simulates the prefills ahead.
func (s *promptScheduler) timeToFirst(r *Request) time.Duration {
	e := s.engine
	now := e.simulation.now
	p := &e.perfect
	p.ends = p.ends[:0]
	for _, end := range s.ends {
		p.ends = append(p.ends, int64(end))
	}
	t := now
	run := func(uncached int64) { // prefills a prompt
		p.dropEnds(int64(t))
		for e.MaxSeqs > 0 && len(p.ends) >= e.MaxSeqs {
			t = time.Duration(p.ends[len(p.ends)-1])
			p.dropEnds(int64(t))
		}
		t += e.Prefill(uncached, len(p.ends))
	}
	decode := func(j *job) {
		p.dropEnds(int64(t))
		p.addEnd(int64(t + e.Decode(j.request.OutputTokens, len(p.ends)+1)))
	}
	if s.prefilled != nil {
		t = s.prefillEnd
		decode(s.prefilled)
	}
	for _, j := range s.jobs {
		run(j.request.PromptTokens - j.expected)
		decode(j)
	}
	run(r.PromptTokens - e.expect(r))
	return t - now
}

// timeToFirst simulates the steps ahead.
func (s *chunkScheduler) timeToFirst(r *Request) time.Duration {
	e := s.engine
	p := &e.perfect
	p.ends = p.ends[:0]
	for _, j := range s.running {
		p.ends = append(p.ends, j.lastStep)
	}
	t, step := e.simulation.now, s.step
	if s.steps > 0 {
		done := max(1, int64((t-s.began+s.length-1)/s.length)) // steps up to the end of the current one
		t, step = s.began+time.Duration(done)*s.length, step+done
	}
	inside := func(i int) (left int64) { // tokens of the prompt of that index after the current step
		j := s.prompts[i]
		if !j.started {
			return j.request.PromptTokens - j.expected
		}
		left = j.remaining
		if i < len(s.parts) && s.steps > 0 {
			left -= s.parts[i].tokens
		}
		return left
	}
	own, i := r.PromptTokens-e.expect(r), 0
	for ; i < len(s.prompts) && inside(i) == 0; i++ { // computed with the current step
		p.addEnd(step + s.prompts[i].request.OutputTokens)
	}
	for left := int64(-1); ; step++ {
		p.dropEnds(step)
		running := len(p.ends)
		budget, tokens := max(1, e.Chunk-int64(running)), int64(0)
		for ; i < len(s.prompts) && tokens < budget && (e.MaxSeqs == 0 || len(p.ends) < e.MaxSeqs); i++ {
			if left < 0 {
				left = inside(i)
			}
			part := min(budget-tokens, left)
			if tokens, left = tokens+part, left-part; left > 0 {
				break
			}
			left = -1
			p.addEnd(step + 1 + s.prompts[i].request.OutputTokens)
		}
		if i == len(s.prompts) && (e.MaxSeqs == 0 || len(p.ends) < e.MaxSeqs) {
			part := min(budget-tokens, own)
			tokens, own = tokens+part, own-part
		}
		t += e.step(tokens, running)
		if own == 0 {
			return t - e.simulation.now
		}
	}
}
