package routing

// Loaded is a worker that is up and does not rest: what decides whether a request may go
// there, as plain values.
type Loaded struct {
	Member           // all but Gate and Ref
	Full     bool    // it has no place, whatever its bounds say
	Inflight int     // requests
	Tokens   int64   // of their prompts, cached or not, and expected answers
	Waiting  int     // requests in its own queue, as reported
	KVUsage  float64 // likewise
	Reported int     // Inflight when it reported them
}

// Eligible decides which workers may take a request, as Acquire does: those that a pool of
// them would show its policy, in their order. Reported metrics count as fresh. Of a view,
// Index is the place in workers, and Full says that the request would wait there. The
// error is ErrNoWorker or ErrFull.
func Eligible(p Policy, limit Saturation, r *Request, workers []Loaded) ([]View, error) {
	all := make([]Worker, len(workers))
	pool := Pool{policy: p, plans: plans(p), saturation: limit, workers: make([]*Worker, len(workers)), views: make([]View, 0, len(workers))}
	for i := range workers {
		l := &workers[i]
		all[i] = Worker{id: l.ID, index: i, weight: l.Weight, group: l.Group, models: l.Models,
			maxInflight: l.MaxInflight, maxTokens: l.MaxTokensInflight, reserved: l.Full, inflight: l.Inflight, tokens: l.Tokens,
			status: Status{Up: true, Waiting: l.Waiting, KVUsage: l.KVUsage, LoadAt: r.Now}, reportedInflight: l.Reported}
		pool.workers[i] = &all[i]
	}
	return pool.eligibleLocked(r, nil)
}
