package pairing

// Load is the load of a tier.
type Load struct {
	Queued  int // requests that wait in the tier's queue
	Workers []WorkerLoad
}

// WorkerLoad is the load of one worker.
type WorkerLoad struct {
	Usable    bool // in rotation (up, breaker closed, not drained), in no backoff and not hung
	Saturated bool // its engine's metrics say so
	Waiting   int  // requests in the engine's own queue
	Inflight  int
	Slots     int // limit on Inflight, configured or learned; 0: unknown
}

// HasRoom reports whether a tier has room for a repeated request: no request waits in its queue, and its usable
// workers have no waiting request, are not saturated and use less than half of their slots together. A worker
// without a known limit counts as one slot, so that it has room only while it is idle.
func (l Load) HasRoom() bool {
	if l.Queued > 0 {
		return false
	}
	inflight, slots := 0, 0
	for _, w := range l.Workers {
		if !w.Usable {
			continue
		}
		if w.Saturated || w.Waiting > 0 {
			return false
		}
		inflight += w.Inflight
		slots += max(1, w.Slots)
	}
	return 2*inflight < slots
}
