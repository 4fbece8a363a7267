package routingtest

import (
	"errors"
	"slices"
	"time"

	"tierway/routing"
)

// maxBooked is the most that one request books on an account.
const maxBooked = 1 << 40

// member is the model of one worker: what the pool should know of it.
type member struct {
	routing.Member
	status                  routing.Status
	backoffUntil, openUntil time.Time
	slowStartFrom           time.Time
	inflight                int
	output                  int64
	tokens                  int64
	concurrencyLimit        int         // requests at once; the pool may learn one where none is configured
	backlog                 backlog     // for it, in the round under way
	reserved                bool        // in the round under way
	prefilled               []prefilled // since it was seen up
}

// backlog is the requests of a round that wait for a worker.
type backlog struct {
	requests        int
	prefill, output int64
}

// prefilled is a prompt that should be in a worker's cache.
type prefilled struct {
	blocks []routing.Block
	at     time.Time
}

// pausedUntil is when the worker is neither in backoff nor open.
func (w *member) pausedUntil() time.Time {
	if w.openUntil.After(w.backoffUntil) {
		return w.openUntil
	}
	return w.backoffUntil
}

// share is how much of its usual load it should get.
func (w *member) share(now time.Time) float64 {
	if w.slowStartFrom.IsZero() {
		return 1
	}
	return min(1, max(0.1, 0.1+0.9*float64(now.Sub(w.slowStartFrom))/float64(10*time.Second)))
}

func (w *member) serves(model uint64) bool {
	return model == 0 || len(w.Models) == 0 || slices.Contains(w.Models, model)
}

// observe forgets the cache of a worker that was down.
func (w *member) observe(s routing.Status) {
	if s.Up && !w.status.Up {
		w.prefilled = nil
	}
	w.status = s
}

// gate returns the gate that the model has of the member's, nil without one.
func (w *member) gate() *gate {
	g, _ := w.Gate.(*gate)
	return g
}

// full is whether it has no place for a request of so many tokens.
func (w *member) full(tokens int64) bool {
	return w.reserved || w.concurrencyLimit > 0 && w.inflight >= w.concurrencyLimit || w.crowded(tokens)
}

// crowded is whether so many tokens more are too many.
func (w *member) crowded(tokens int64) bool {
	return w.MaxTokensInflight > 0 && w.inflight > 0 && w.tokens+tokens > w.MaxTokensInflight
}

// tokensOf is the prompt's and the answer's tokens as a pool books them.
func tokensOf(r *routing.Request) (prompt, output int64) {
	return min(max(0, r.PromptTokens), maxBooked), min(max(0, r.OutputTokens), maxBooked)
}

// gate is a gate under the model's control, which checks that each outcome is
// reported once.
type gate struct {
	t        failer
	shut     bool
	tickets  uint64
	open     map[uint64]bool // tickets without an outcome
	good     int             // outcomes
	bad      int
	excluded int
}

// Allow gives a ticket unless the gate is shut.
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

// Report takes the outcome of a ticket.
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

// Cut takes a verdict on an answer that broke off, after a good one.
func (g *gate) Cut(began time.Time, err error) {
	if g.good == 0 || err == nil || errors.Is(err, routing.ErrExcluded) || began.Before(epoch()) {
		g.t.Fatalf("after %d good verdicts an answer that began at %s was cut: %v", g.good, began, err)
	}
	g.bad++
}

// held is a lease under way with the model's account of it.
type bookedLease struct {
	lease           *routing.Lease
	on              *member
	blocks          []routing.Block
	prefill, output int64
	tokens          int64     // of the whole prompt and the answer
	due             time.Time // when an answer that comes whole is taken for prefilled; zero of a stream
	unbooked        bool
	bookedAt        time.Time
	stream          bool
	reported        bool
	outcome         error
}

// remember notes that the lease's prompt was prefilled then.
func (h *bookedLease) remember(at time.Time) {
	if at.IsZero() {
		at = h.bookedAt
	}
	if !h.unbooked {
		h.on.prefilled = append(h.on.prefilled, prefilled{h.blocks, at})
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
