package routing

import "time"

// prefillRun is a series of prefills on a worker without a pause, at most a busy period. Engines compute short
// prompts together, and the end of a long prompt together with the beginning of the next one. The duration of a
// run shows the prefill time of its prompts together; the duration of one prompt does not show its own.
type prefillRun struct {
	number uint64
	began  time.Time
	ended  time.Time // first token of its last prefill so far
	alone  bool      // it began on an idle worker
	closed bool      // no further prefill joins it
	// nothing is learned from its duration: it is unknown, or was learned already
	excluded bool
	// its latest prefills are of answers that are not streamed: they ended at some time after the field ended
	endUnknown bool

	booked         int64   // sum of the uncached tokens, as they were predicted
	joined         int     // prefills
	known          int     // prefills with usage, which the following sums contain
	tokens         float64 // uncached tokens
	assumed        float64 // cached tokens that were predicted and not reported
	inflightTokens float64 // uncached tokens · other requests in flight
}

// prefillRuns are the latest runs of a worker.
type prefillRuns struct {
	latest uint64       // number of the run in progress; 0 before the first
	all    []prefillRun // by number modulo keptRuns
}

const (
	// keptRuns is more than the runs that a worker begins during a long answer.
	keptRuns = 512
	// runTokens is the number of tokens after which the next prefill begins another run: four steps of
	// 2,048 tokens, vLLM's default. The parts of steps at the ends of a run then hardly count.
	runTokens = 8192
	// oneStep is the longest time between two first tokens of one step.
	oneStep = 20 * time.Millisecond
)

// at returns the run of that number, nil if it is not kept.
func (rs *prefillRuns) at(number uint64) *prefillRun {
	if number == 0 || rs.all[number%keptRuns].number != number {
		return nil
	}
	return &rs.all[number%keptRuns]
}

// beginRunLocked closes the run in progress and begins the next one.
func (p *Pool) beginRunLocked(w *Worker, at time.Time, alone bool) *prefillRun {
	rs := &w.costs.runs
	if rs.all == nil {
		rs.all = make([]prefillRun, keptRuns)
	}
	if run := rs.at(rs.latest); run != nil {
		run.closed, run.excluded = true, run.excluded || run.endUnknown
		p.learnRunLocked(w, run)
	}
	rs.latest++
	run := &rs.all[rs.latest%keptRuns]
	*run = prefillRun{number: rs.latest, began: at, ended: at, alone: alone}
	return run
}

// joinRunLocked adds a finished prefill to the run in progress, or after runTokens to a new one. It returns the
// run's number, or 0 if the run is broken. at is the time of its first token; zero if it is unknown.
func (p *Pool) joinRunLocked(w *Worker, uncached int64, at time.Time) uint64 {
	run := w.costs.runs.at(w.costs.runs.latest)
	seen := !at.IsZero()
	if run.excluded {
		if seen {
			p.beginRunLocked(w, at, false)
		}
		return 0
	}
	if run.booked >= runTokens && !run.endUnknown && (!seen || at.Sub(run.ended) >= oneStep) {
		run = p.beginRunLocked(w, run.ended, false)
	}
	if run.endUnknown = !seen; seen {
		run.ended = at
	}
	run.booked += uncached
	run.joined++
	return run.number
}

// breakRunLocked ends the run in progress at its latest known first token, because a prefill was removed and its
// computed part is unknown. The next run begins with the next first token.
func (p *Pool) breakRunLocked(w *Worker) {
	if run := w.costs.runs.at(w.costs.runs.latest); run != nil && run.excluded {
		return // it is broken already
	}
	p.beginRunLocked(w, time.Time{}, false).excluded = true
}

// addToRunLocked adds the usage of a prefill to the run of that number.
func (p *Pool) addToRunLocked(w *Worker, number uint64, uncached, assumed float64, others int) {
	run := w.costs.runs.at(number)
	if run == nil || uncached <= 0 {
		return
	}
	run.known++
	run.tokens += uncached
	run.assumed += assumed
	run.inflightTokens += uncached * float64(others)
	p.learnRunLocked(w, run)
}

// learnRunLocked learns from a run once all its prefills have ended and their usage is known.
func (p *Pool) learnRunLocked(w *Worker, run *prefillRun) {
	// If most of the tokens were only assumed to be cached, their number is too uncertain.
	if !run.closed || run.excluded || run.known < run.joined || run.assumed > run.tokens {
		return
	}
	run.excluded = true // each run is learned once
	x := regressors{xBehind: float64(run.joined), xTokens: run.tokens, xInflightTokens: run.inflightTokens}
	if run.alone {
		x[xAlone], x[xBehind] = 1, x[xBehind]-1
	}
	if took := run.ended.Sub(run.began).Seconds(); took > 0 && run.joined > 0 {
		p.learnPrefillLocked(w, oneByOne, x, took)
	}
}
