package control

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"tierway/routing"
)

// Handovers counts the prompts that a worker keeps for other workers. It is safe for concurrent use; the zero
// Handovers is empty.
type Handovers struct {
	mu      sync.Mutex
	open    int
	expires []time.Time // of prompts that no worker will read
}

// Add counts a prompt that the worker keeps from now on. Its owner owes one call of Remove.
func (h *Handovers) Add() {
	h.mu.Lock()
	h.open++
	h.mu.Unlock()
}

// Remove ends the count of a prompt: at once if another worker has read it, else when the engine's lease ends.
func (h *Handovers) Remove(read bool, now, leaseEnd time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open--
	h.dropExpiredLocked(now)
	if !read && now.Before(leaseEnd) {
		h.expires = append(h.expires, leaseEnd)
	}
}

// Open returns the number of prompts that the worker keeps.
func (h *Handovers) Open(now time.Time) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dropExpiredLocked(now)
	return h.open + len(h.expires)
}

func (h *Handovers) dropExpiredLocked(now time.Time) {
	h.expires = slices.DeleteFunc(h.expires, func(end time.Time) bool { return !now.Before(end) })
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
