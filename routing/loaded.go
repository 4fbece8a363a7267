package routing

// Loaded is the state of a worker that is up and neither in backoff nor open, as plain values: all
// that decides whether it is eligible.
type Loaded struct {
	Member           // without Gate and Ref
	Full     bool    // it has no room, whatever its bounds are
	Inflight int     // requests
	Tokens   int64   // prompts, cached or not, and expected output in flight
	Waiting  int     // requests in the engine's own queue, as reported
	KVUsage  float64 // as reported
	Reported int     // Inflight at the time of that report
}

// Eligible returns the workers that a pool of them would show its policy for the request, in their
// order. Reported metrics count as fresh. In a View, Index is the position in workers, and Full
// means that the request would wait there. The error is ErrNoWorker or ErrFull.
func Eligible(p Policy, limit Saturation, r *Request, workers []Loaded) ([]View, error) {
	all := make([]Worker, len(workers))
	pool := Pool{
		policy:     p,
		saturation: limit,
		workers:    make([]*Worker, len(workers)),
		views:      make([]View, 0, len(workers)),
	}
	for i := range workers {
		l := &workers[i]
		all[i] = Worker{id: l.ID, index: i, weight: l.Weight, group: l.Group, models: l.Models, region: l.Region,
			stages: l.Stages, maxInflight: l.MaxInflight, maxTokens: l.MaxTokensInflight, reserved: l.Full,
			inflight: l.Inflight, tokens: l.Tokens,
			status: Status{Up: true, Waiting: l.Waiting, KVUsage: l.KVUsage, LoadAt: r.Now}, reportedInflight: l.Reported}
		pool.workers[i] = &all[i]
	}
	return pool.eligibleLocked(r, nil)
}
