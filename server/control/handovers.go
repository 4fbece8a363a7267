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

// Transfers knows since when a decode worker has answered no prompt that was handed over to it. It is safe for
// concurrent use; the zero Transfers has no failure.
type Transfers struct {
	failedAt atomic.Int64 // the first failure since the last success, in Unix nanoseconds; 0: none
}

// Fail records a failure at now, and reports whether the worker is the cause: it had failed before the prompt was
// computed, or sent. One prefill engine that ends makes only prompts fail that it had computed before.
func (t *Transfers) Fail(computed, now time.Time) (atFault bool) {
	return !t.failedAt.CompareAndSwap(0, now.UnixNano()) && computed.UnixNano() > t.failedAt.Load()
}

// Succeed records that the worker has read a prompt.
func (t *Transfers) Succeed() {
	if t.failedAt.Load() != 0 {
		t.failedAt.Store(0)
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
