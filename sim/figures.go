package sim

import "time"

// Figures summarizes the requests of a run that were submitted from a moment on, as the reference tables do.
// For a request that has not ended with the simulation, times count up to that end.
type Figures struct {
	Requests   int
	Unfinished int     // requests that were refused, or had not ended with the simulation
	Hits       float64 // share of the prompt tokens that the engines had cached
	Uneven     float64 // prompt tokens of the engine with the most, divided by the mean over the engines
	TTFT, E2E  Times   // sorted: from the submission to the first token, and to the end
	Stages     StageFigures
}

// Figures returns the figures of the requests that were submitted from that time on.
func (r *Result) Figures(from time.Duration) Figures {
	f := Figures{}
	prompt, cached := int64(0), int64(0)
	tokens := map[string]int64{}
	for _, rec := range r.Records {
		if rec.SubmittedAt < from || rec.Direct {
			continue
		}
		f.Requests++
		if !rec.Answered() {
			f.Unfinished++
		}
		first, done := rec.First, rec.Done
		if first == 0 {
			first = r.End
		}
		if !rec.Answered() {
			done = r.End
		}
		f.TTFT, f.E2E = append(f.TTFT, first-rec.SubmittedAt), append(f.E2E, done-rec.SubmittedAt)
		if rec.First > 0 {
			prompt, cached = prompt+rec.Request.PromptTokens, cached+rec.Cached
			tokens[rec.Worker] += rec.Request.PromptTokens
		}
	}
	f.TTFT.Sort()
	f.E2E.Sort()
	f.Stages = r.stageFigures(from)
	if prompt > 0 {
		f.Hits = float64(cached) / float64(prompt)
		maxTokens := int64(0)
		for _, n := range tokens {
			maxTokens = max(maxTokens, n)
		}
		f.Uneven = float64(maxTokens) * float64(len(r.Engines)) / float64(prompt)
	}
	return f
}
