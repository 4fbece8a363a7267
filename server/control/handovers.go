package control

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tierway/routing"
)

// Handovers counts the prompts that a worker keeps for other workers. It is safe for concurrent use; the zero
// Handovers is empty.
type Handovers struct {
	mu   sync.Mutex
	ends []time.Time // when the engine gives up each prompt that no other one has read
}

// Add counts a prompt that the worker keeps until end, or until another worker has read it.
func (h *Handovers) Add(end time.Time) {
	h.mu.Lock()
	h.ends = append(h.ends, end)
	h.mu.Unlock()
}

// Remove ends the count of a prompt with that end if another worker has read it. Otherwise the worker keeps it until
// then.
func (h *Handovers) Remove(read bool, end time.Time) {
	if !read {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := slices.IndexFunc(h.ends, end.Equal); i >= 0 {
		h.ends = slices.Delete(h.ends, i, i+1)
	}
}

// Open returns the number of prompts that the worker keeps.
func (h *Handovers) Open(now time.Time) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ends = slices.DeleteFunc(h.ends, func(end time.Time) bool { return !now.Before(end) })
	return len(h.ends)
}

// Failures has the time of the first failure of one kind since a worker last succeeded. It is safe for concurrent use;
// the zero Failures has none.
type Failures struct {
	first atomic.Int64 // in Unix nanoseconds; 0: none
}

// Fail records a failure at now of what began at began, and reports whether the worker is the cause: it had failed
// before that began. One prefill engine that ends makes only prompts fail that it had computed before.
func (f *Failures) Fail(began, now time.Time) (atFault bool) {
	return !f.first.CompareAndSwap(0, now.UnixNano()) && began.UnixNano() > f.first.Load()
}

// Succeed records a success.
func (f *Failures) Succeed() {
	if f.first.Load() != 0 {
		f.first.Store(0)
	}
}

// The kinds of workers that MissingWorkers returns.
const (
	NoWorker        = "no worker"
	NoDecodeWorker  = "no decode worker"
	NoPrefillWorker = "no prefill worker"
)

// MissingWorkers returns which kind of worker a pool lacks; "" if none. stateOf returns the stages of a worker, and
// whether it takes requests. serves reports whether the pool serves requests nevertheless.
func MissingWorkers[W any](all []W, stateOf func(*W) (s routing.Stages, takes bool)) (missing string, serves bool) {
	var configured, has routing.Stages
	for i := range all {
		s, takes := stateOf(&all[i])
		s = cmp.Or(s, routing.StageWhole)
		if configured |= s; takes {
			has |= s
		}
	}
	whole := has&routing.StageWhole != 0
	switch {
	case has == 0:
		return NoWorker, false
	case has&(routing.StageWhole|routing.StageDecode) == 0:
		return NoDecodeWorker, false
	case configured&^has&routing.StagePrefill != 0, !whole && has&routing.StagePrefill == 0:
		return NoPrefillWorker, whole
	}
	return "", true
}
