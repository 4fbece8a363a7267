package server

import (
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"tierway/routing"
)

// evidenceKept is how many different requests a worker's evidence holds: more than the
// failures in a row that open a breaker by default, in 256 bytes for each worker.
const evidenceKept = 16

// evidence holds the requests that a worker has failed last, newest first. An engine may
// fail because of the request, so that one of them says nothing of the worker, however
// often it is repeated. It is safe for concurrent use; the zero evidence holds none.
type evidence struct {
	mu     sync.Mutex
	worker *routing.Worker // of the last failure
	failed []failedRequest // at most evidenceKept
}

// failedRequest identifies a request by its tenant and its content.
type failedRequest struct{ tenant, content uint64 }

// add records a failure of the worker and reports whether the worker is at fault by what
// it failed before: another request, if it has not failed this one yet, or another
// tenant's request since it failed this one last.
func (e *evidence) add(w *routing.Worker, r failedRequest) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.worker = w
	known := slices.Index(e.failed, r)
	since := e.failed[:max(known, 0)]
	blamed := known < 0 && len(e.failed) > 0 ||
		slices.ContainsFunc(since, func(o failedRequest) bool { return o.tenant != r.tenant })
	switch {
	case known >= 0:
		e.failed = slices.Delete(e.failed, known, known+1)
	case len(e.failed) == evidenceKept:
		e.failed = e.failed[:evidenceKept-1]
	}
	e.failed = slices.Insert(e.failed, 0, r)
	return blamed
}

// holder returns the worker if it has failed the request, else nil.
func (e *evidence) holder(r failedRequest) *routing.Worker {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !slices.Contains(e.failed, r) {
		return nil
	}
	return e.worker
}

// failedRequest returns the request as evidence. An upload, whose body is not kept, is
// told from others by its length.
func (x *exchange) failedRequest() failedRequest {
	r := failedRequest{tenant: maphash.String(x.s.seed, x.caller.Tenant), content: maphash.String(x.s.seed, x.r.URL.Path)}
	if x.upload != nil {
		r.content += mixed(uint64(x.r.ContentLength))
	} else {
		r.content += maphash.Bytes(x.s.seed, x.req.Body)
	}
	return r
}

// passOver excludes the workers that have failed the same request before from its next
// attempt, if another one can take it. Otherwise two failing workers, which answer
// fastest, would receive every repetition, and no answer would show their fault.
func (x *exchange) passOver(r failedRequest) {
	var failed []*routing.Worker
	others := false
	for _, v := range x.pool.routing.Snapshot(time.Now()) {
		if slices.ContainsFunc(x.tried, func(w *routing.Worker) bool { return w.ID() == v.ID }) {
			continue
		}
		if w := v.Ref.(*member).evidence.holder(r); w != nil {
			failed = append(failed, w)
		} else if v.Up && v.Weight > 0 && v.Cooling == 0 && v.Open == 0 && !v.Saturated && (v.MaxInflight == 0 || v.Inflight < v.MaxInflight) {
			others = true
		}
	}
	if others {
		x.tried = append(x.tried, failed...)
	}
}
