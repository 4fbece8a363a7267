package control

import (
	"slices"
	"sync"
	"time"

	"tierway/routing"
)

// evidenceKept is the largest number of different requests in a worker's evidence. It exceeds the
// consecutive failures that open a breaker by default, and takes 256 bytes per worker.
const evidenceKept = 16

// contradictedFor is the time for which a good answer to another tenant outweighs the failures of one
// tenant's requests. It is the time for which silent requests of one tenant alone prove no hang.
const contradictedFor = time.Minute

// evidence holds the last requests that failed on a worker, newest first. A request can itself make an
// engine fail, so one failing request proves nothing about the worker, however often it is repeated.
// It is safe for concurrent use; the zero evidence is empty.
type evidence struct {
	mu     sync.Mutex
	worker *routing.Worker // of the last failure
	failed []FailedRequest // at most evidenceKept
	good   [2]goodAnswer   // of the last two tenants
}

// FailedRequest identifies a request by its tenant and its content.
type FailedRequest struct{ Tenant, Content uint64 }

// goodAnswer is the last good answer of the worker to a tenant.
type goodAnswer struct {
	tenant uint64
	at     time.Time
}

// AddAnswer records a good answer of the worker to a tenant.
func (e *evidence) AddAnswer(tenant uint64, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.good[0].tenant != tenant {
		e.good[1] = e.good[0]
	}
	e.good[0] = goodAnswer{tenant, now}
}

// AddFailure records the failure of a request on the worker and reports whether the earlier failures
// show that the worker is at fault. They do if the previous failure was of another tenant. If it was of
// the same tenant, this request must be a new one, and the worker must have no good answer to another
// tenant within contradictedFor.
func (e *evidence) AddFailure(w *routing.Worker, r FailedRequest, now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.worker = w
	known := slices.Index(e.failed, r)
	blamed := len(e.failed) > 0 && (e.failed[0].Tenant != r.Tenant || known < 0 && !e.contradicted(r.Tenant, now))
	switch {
	case known >= 0:
		e.failed = slices.Delete(e.failed, known, known+1)
	case len(e.failed) == evidenceKept:
		e.failed = e.failed[:evidenceKept-1]
	}
	e.failed = slices.Insert(e.failed, 0, r)
	return blamed
}

// contradicted reports whether the worker has a good answer to another tenant within contradictedFor.
// The caller holds mu.
func (e *evidence) contradicted(tenant uint64, now time.Time) bool {
	return slices.ContainsFunc(e.good[:], func(g goodAnswer) bool {
		return g.tenant != tenant && !g.at.IsZero() && now.Sub(g.at) < contradictedFor
	})
}

// FailedWorker returns the worker of the last failure if the request has failed on this member, else
// nil.
func (e *evidence) FailedWorker(r FailedRequest) *routing.Worker {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !slices.Contains(e.failed, r) {
		return nil
	}
	return e.worker
}
