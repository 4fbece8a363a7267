package control

import (
	"slices"
	"sync"
	"time"
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
