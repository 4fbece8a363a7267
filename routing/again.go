package routing

import (
	"errors"
	"math"
	"time"
)

// ErrIncomplete means that a record has not all candidates, so that the pick cannot
// be decided again.
var ErrIncomplete = errors.New("the record has not all candidates")

// Again decides a recorded pick again, of workers as they were then. The same policy
// with the same configuration chooses the same worker: what it remembered is taken
// from the record. Any other policy begins with what it has; chain is the recorded
// chain of the prompt and prefix the hash of its first turn, which it may go by.
// The candidates of c are the pool: whoever wants other weights, or fewer workers,
// changes them before. It returns the new choice, whose Candidates say why, and the
// index into them; a policy that was asked remembers nothing of it.
func Again(p Policy, c *Choice, model, prefix Hash, chain []Link, at time.Time) (i int, reason Reason, decided *Choice, err error) {
	if c == nil || len(c.Candidates) == 0 || len(c.Candidates) < c.Seen {
		return -1, "", nil, ErrIncomplete
	}
	decided = &Choice{}
	r := Request{Now: at, Rand: uint64(c.Rand), Model: uint64(model), Prefix: uint64(prefix), PromptTokens: c.PromptTokens, OutputTokens: c.OutputTokens,
		Waited: time.Duration(math.Round(c.WaitedMs * float64(time.Millisecond))), Wait: c.Waits,
		Record: decided, dry: true, recall: c}
	for _, l := range chain {
		r.Blocks = append(r.Blocks, Block(l))
	}
	ws := make([]View, len(c.Candidates))
	for i := range ws {
		ws[i] = c.Candidates[i].view()
	}
	pool := Pool{policy: p, marks: make([]mark, len(ws))}
	i, reason = pool.pickLocked(&r, ws)
	return i, reason, decided, nil
}

// view is the worker as the policy saw it.
func (c *Candidate) view() View {
	return View{ID: c.Worker, Index: c.Index, Weight: c.Weight, Up: true, Inflight: c.Inflight, MaxInflight: c.MaxInflight, Full: c.Full,
		PendingTokens: c.PendingTokens, OutputTokens: c.OutputTokens, Overlap: c.Overlap, Waiting: c.Waiting, KVUsage: c.KVUsage, Rate: c.Rate}
}
