package routing

import "time"

// Saturation defines when a worker's own metrics keep new requests from it. The zero value never
// saturates a worker.
type Saturation struct {
	Waiting int // requests in the engine's own queue, at least 1; 0 ignores the queue
	// share of the KV cache in use while requests wait in the engine, 0 to 1; 0 ignores the cache
	KVUsage    float64
	StaleAfter time.Duration // older metrics do not count; 0 is no limit
}

// staleEvery is the shortest time between two counts of one worker's stale metrics. The counter's
// rate is then the number of workers without usable metrics, at any traffic.
const staleEvery = time.Second

// SetSaturation sets the rule of saturation, from the next pick on.
func (p *Pool) SetSaturation(s Saturation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.saturation = s
}

// StaleSeconds returns the number of seconds in which picks ignored metrics of a worker because they
// were stale, summed over the workers. It never decreases.
func (p *Pool) StaleSeconds() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stale
}

// queuedFor is how long requests that wait inside an engine excuse its late first tokens. An
// engine whose requests always wait may itself be slow.
const queuedFor = 30 * time.Second

// recordLoadLocked records the requests in flight at a load report, and since when the reports
// show requests that wait inside the engine.
func (w *Worker) recordLoadLocked(s Status) {
	if s.LoadAt.Equal(w.status.LoadAt) {
		return
	}
	w.reportedInflight = w.inflight
	if s.Waiting <= 0 {
		return
	}
	if s.LoadAt.Sub(w.queuedUntil) > queuedFor {
		w.queuedFrom = s.LoadAt
	}
	w.queuedUntil = s.LoadAt
}

// mayHaveQueuedLocked reports whether a request that was booked at bookedAt and had its first
// token at at may have waited inside the engine, by the engine's metrics.
func (w *Worker) mayHaveQueuedLocked(bookedAt, at time.Time) bool {
	return (w.status.Waiting > 0 || !bookedAt.After(w.queuedUntil)) && at.Sub(w.queuedFrom) < queuedFor
}

// saturatedLocked reports whether a pick leaves out the worker because it is saturated. It counts
// stale metrics, except in a preview.
func (p *Pool) saturatedLocked(w *Worker, r *Request) bool {
	saturated, stale := p.metricsLocked(w, r.Now)
	if stale && !r.preview && r.Now.Sub(w.staleAt) >= staleEvery {
		p.stale++
		w.staleAt = r.Now
	}
	return saturated
}

// metricsLocked reports whether the worker is saturated now, and whether its metrics are stale.
// Missing and stale metrics do not saturate. KV usage counts only while requests wait inside the
// engine, because some engines count cached prompts that no request uses.
func (p *Pool) metricsLocked(w *Worker, now time.Time) (saturated, stale bool) {
	if w.status.Saturated {
		return true, false
	}
	if w.status.LoadAt.IsZero() || p.saturation.Waiting <= 0 && p.saturation.KVUsage <= 0 {
		return false, false
	}
	if p.saturation.StaleAfter > 0 && now.Sub(w.status.LoadAt) > p.saturation.StaleAfter {
		return false, true
	}
	return p.saturation.Reached(w.waitingLocked(), w.status.KVUsage), false
}

// Reached reports whether fresh metrics of these values saturate a worker.
func (s *Saturation) Reached(waiting int, kvUsage float64) bool {
	return s.Waiting > 0 && waiting >= s.Waiting || s.KVUsage > 0 && waiting > 0 && kvUsage >= s.KVUsage
}

// idleLocked reports whether the worker has no request in flight and only metrics can keep
// requests from it.
func (w *Worker) idleLocked() bool { return w.inflight == 0 && !w.status.Saturated && !w.reserved }

// waitingLocked estimates the engine's queue now. While requests wait inside an engine, its queue
// changes with the requests in flight. Without this correction a worker would idle until its
// next metrics, or receive the gateway's whole queue before them. An empty queue does not show
// how many more requests the engine would run.
func (w *Worker) waitingLocked() int {
	if w.status.Waiting <= 0 {
		return 0
	}
	return max(0, w.status.Waiting+w.inflight-w.reportedInflight)
}
