package routing

import "time"

// Saturation says when a worker's own metrics keep new requests from it. The zero value
// never does.
type Saturation struct {
	Waiting    int           // requests in the engine's own queue, from 1; 0: its queue saturates nobody
	KVUsage    float64       // share of the KV cache in use while requests wait in the engine, above 0 to 1; 0: the cache never counts
	StaleAfter time.Duration // metrics that are older do not count; 0: they count at any age
}

// staleEvery is how often one worker's old metrics are counted: so the counter's rate is
// the number of workers without usable metrics, whatever the traffic.
const staleEvery = time.Second

// Limit sets what saturates a worker, from the next decision on.
func (p *Pool) SetSaturation(s Saturation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.saturation = s
}

// Stale returns for how many seconds decisions passed over metrics of a worker
// because they were too old, summed over the workers. It only grows.
func (p *Pool) Stale() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stale
}

// queuedFor is how long requests that wait inside an engine excuse its first
// tokens. An engine in which requests always wait may be slow itself.
const queuedFor = 30 * time.Second

// recordLoadLocked notes what was in flight here when the worker reported its load, and since
// when and until when it has reported requests that wait inside it.
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

// mayHaveQueuedLocked reports whether a first token at that time, of a request booked at
// bookedAt, may have waited inside the engine, by the engine's metrics.
func (w *Worker) mayHaveQueuedLocked(bookedAt, at time.Time) bool {
	return (w.status.Waiting > 0 || !bookedAt.After(w.queuedUntil)) && at.Sub(w.queuedFrom) < queuedFor
}

// saturatedLocked reports whether a decision leaves the worker out because it is
// saturated, and counts metrics that were too old, except in a preview.
func (p *Pool) saturatedLocked(w *Worker, r *Request) bool {
	saturated, stale := p.metricsLocked(w, r.Now)
	if stale && !r.preview && r.Now.Sub(w.staleAt) >= staleEvery {
		p.stale++
		w.staleAt = r.Now
	}
	return saturated
}

// metricsLocked reports whether the worker's metrics saturate it now; missing and stale
// ones do not. A cache in use counts only while requests wait inside the engine: some
// engines count cached prompts without users.
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

// Reached reports whether metrics of that value saturate a worker while they are fresh.
func (s *Saturation) Reached(waiting int, kvUsage float64) bool {
	return s.Waiting > 0 && waiting >= s.Waiting || s.KVUsage > 0 && waiting > 0 && kvUsage >= s.KVUsage
}

// idleLocked reports whether only metrics can keep requests from the worker, and it has
// none in flight.
func (w *Worker) idleLocked() bool { return w.inflight == 0 && !w.status.Saturated && !w.reserved }

// waitingLocked is the engine's queue by now. While requests wait inside an engine, its
// queue grows and shrinks with the requests in flight. Without that correction a worker
// would be idle until its next metrics, or get a gateway's whole queue before them. An
// empty queue says nothing about how many requests the engine would begin.
func (w *Worker) waitingLocked() int {
	if w.status.Waiting <= 0 {
		return 0
	}
	return max(0, w.status.Waiting+w.inflight-w.reportedInflight)
}
