package control

import (
	"slices"
	"sync"
	"time"

	"tierway/routing"
)

// evidenceKept is how many different requests a worker's evidence holds: more than the
// failures in a row that open a breaker by default, in 256 bytes for each worker.
const evidenceKept = 16

// contradictedFor is how long a good answer to another tenant outweighs what one tenant's
// prompts show of a worker: as long as one tenant's silent streams show no hang.
const contradictedFor = hangAlone

// evidence holds the requests that a worker has failed last, newest first. An engine may
// fail because of the request, so that one of them says nothing of the worker, however
// often it is repeated. It is safe for concurrent use; the zero evidence holds none.
type evidence struct {
	mu     sync.Mutex
	worker *routing.Worker // of the last failure
	failed []FailedRequest // at most evidenceKept
	good   [2]goodAnswer   // the last one of each of the last two tenants
}

// FailedRequest identifies a request by its tenant and its content.
type FailedRequest struct{ Tenant, Content uint64 }

// goodAnswer is when the worker has last answered a tenant well.
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

// AddFailure records a failure of the worker and reports whether the worker is at fault by what
// it failed before. The last failure of another tenant's request is evidence. Another
// request of the same tenant is, unless the worker has failed this one too or has
// answered another tenant well lately.
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

// contradicted reports whether the worker has answered another tenant well lately. The
// caller holds mu.
func (e *evidence) contradicted(tenant uint64, now time.Time) bool {
	return slices.ContainsFunc(e.good[:], func(g goodAnswer) bool {
		return g.tenant != tenant && !g.at.IsZero() && now.Sub(g.at) < contradictedFor
	})
}

// FailedWorker returns the worker if it has failed the request, else nil.
func (e *evidence) FailedWorker(r FailedRequest) *routing.Worker {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !slices.Contains(e.failed, r) {
		return nil
	}
	return e.worker
}
