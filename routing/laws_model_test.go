package routing_test

import (
	"errors"
	"slices"
	"time"

	"tierway/routing"
)

// maxBooked is the largest number of tokens that one request books on an account.
const maxBooked = 1 << 40

// member is the model of one worker: what the pool should have recorded of it.
type member struct {
	routing.Member
	status                  routing.Status
	backoffUntil, openUntil time.Time
	slowStartFrom           time.Time
	inflight                int
	output                  int64
	tokens                  int64
	concurrencyLimit        int               // on requests; the pool may learn one if no bound is configured
	backlog                 backlog           // of the current round
	reserved                bool              // in the current round
	prefilled               [][]routing.Block // prompts since it was last observed up
}

// backlog is the load of a round's requests that wait for a worker.
type backlog struct {
	requests        int
	prefill, output int64
}

// pausedUntil returns when the worker is neither in backoff nor open.
func (w *member) pausedUntil() time.Time {
	if w.openUntil.After(w.backoffUntil) {
		return w.openUntil
	}
	return w.backoffUntil
}

// share returns the share of its usual load that the worker should get.
func (w *member) share(now time.Time) float64 {
	if w.slowStartFrom.IsZero() {
		return 1
	}
	return min(1, max(0.1, 0.1+0.9*float64(now.Sub(w.slowStartFrom))/float64(10*time.Second)))
}

func (w *member) serves(model uint64) bool {
	return model == 0 || len(w.Models) == 0 || slices.Contains(w.Models, model)
}

// observe clears the cache of a worker that was down.
func (w *member) observe(s routing.Status) {
	if s.Up && !w.status.Up {
		w.prefilled = nil
	}
	w.status = s
}

// gate returns the model of the member's gate, or nil without one.
func (w *member) gate() *gate {
	g, _ := w.Gate.(*gate)
	return g
}

// full reports whether the worker has no room for a request of that many tokens.
func (w *member) full(tokens int64) bool {
	return w.reserved || w.concurrencyLimit > 0 && w.inflight >= w.concurrencyLimit || w.crowded(tokens)
}

// crowded reports whether that many more tokens exceed the bound.
func (w *member) crowded(tokens int64) bool {
	return w.MaxTokensInflight > 0 && w.inflight > 0 && w.tokens+tokens > w.MaxTokensInflight
}

// tokensOf returns the prompt and output tokens as a pool books them.
func tokensOf(r *routing.Request) (prompt, output int64) {
	return min(max(0, r.PromptTokens), maxBooked), min(max(0, r.OutputTokens), maxBooked)
}

// gate is a gate under the model's control. It checks that each outcome is reported once.
type gate struct {
	t        failer
	shut     bool
	tickets  uint64
	open     map[uint64]bool // tickets without an outcome
	good     int             // outcomes
	bad      int
	excluded int
}

// Allow returns a ticket unless the gate is shut.
func (g *gate) Allow(expected time.Duration) (uint64, error) {
	if expected <= 0 || expected > 10*time.Minute {
		g.t.Fatalf("an outcome is expected after %s", expected)
	}
	if g.shut {
		return 0, errShut
	}
	g.tickets++
	g.open[g.tickets] = true
	return g.tickets, nil
}

// Report counts the outcome of a ticket.
func (g *gate) Report(ticket uint64, err error) {
	if !g.open[ticket] {
		g.t.Fatalf("a gate got two outcomes for one ticket")
	}
	delete(g.open, ticket)
	switch {
	case err == nil:
		g.good++
	case errors.Is(err, routing.ErrExcluded):
		g.excluded++
	default:
		g.bad++
	}
}

// ReportCut counts the second outcome of an answer that broke off after a good one.
func (g *gate) ReportCut(began time.Time, err error) {
	if g.good == 0 || err == nil || errors.Is(err, routing.ErrExcluded) || began.Before(epoch()) {
		g.t.Fatalf("after %d successes an answer that began at %s was cut: %v", g.good, began, err)
	}
	g.bad++
}

// bookedLease is a lease with the model's account of it.
type bookedLease struct {
	lease           *routing.Lease
	on              *member
	blocks          []routing.Block
	prefill, output int64
	tokens          int64     // of the whole prompt and the answer
	due             time.Time // predicted end of the prefill of an answer that is not streamed; zero for a stream
	unbooked        bool
	bookedAt        time.Time
	stream          bool
	reported        bool
	outcome         error
}

// remember records that the lease's prompt was prefilled.
func (h *bookedLease) remember() {
	if !h.unbooked {
		h.on.prefilled = append(h.on.prefilled, h.blocks)
	}
}

func (h *bookedLease) unbook() {
	if !h.unbooked {
		h.unbooked, h.prefill = true, 0
		h.on.inflight--
		h.on.output -= h.output
		h.on.tokens -= h.tokens
	}
}
