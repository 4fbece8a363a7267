package routing

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// ErrIncomplete means that a record lacks candidates, so that its pick cannot be decided again.
var ErrIncomplete = errors.New("the record lacks candidates")

// Redecide makes a recorded pick again among the candidates of c, which the caller may have
// changed. model, prefix and chain are those of the recorded request. A policy of the same
// name and configuration picks the same worker, because it takes its memory from the record.
// Any other policy uses its own memory. p learns nothing and must not be used meanwhile.
// Redecide returns the new choice and an index into its candidates. Its error is
// ErrIncomplete, or names the field of c that no pick can have recorded.
func Redecide(p Policy, c *Choice, model, prefix Hash, chain []Link,
	at time.Time) (i int, reason Reason, decided *Choice, err error) {
	if err := c.check(); err != nil {
		return -1, "", nil, err
	}
	r, ws := c.recorded(model, prefix, chain, at)
	decided = &Choice{}
	r.Record, r.recorded = decided, c
	pool := Pool{policy: policyCopy(p, &r), assessments: make([]assessment, len(ws))}
	i, reason = pool.pickLocked(&r, ws)
	return i, reason, decided, nil
}

// LearnChoice lets a policy pick among the candidates of a record by its own memory, and learn from
// the request. c must be valid by Check.
func LearnChoice(p Policy, c *Choice, model, prefix Hash, chain []Link, at time.Time) (i int, reason Reason) {
	r, ws := c.recorded(model, prefix, chain, at)
	pool := Pool{policy: p}
	return pool.pickLocked(&r, ws)
}

// recorded returns the request of a record and the views that the policy was shown.
func (c *Choice) recorded(model, prefix Hash, chain []Link, at time.Time) (Request, []View) {
	r := Request{
		Now:          at,
		Rand:         uint64(c.Rand),
		Model:        uint64(model),
		Prefix:       uint64(prefix),
		PromptTokens: c.PromptTokens,
		OutputTokens: c.OutputTokens,
		Rule:         c.Rule,
		Waited:       time.Duration(math.Round(c.WaitedMs * float64(time.Millisecond))),
		Wait:         c.Waits,
		Stream:       c.Stream,
		traffic:      c.Traffic,
	}
	if c.KeyOf == KeySession || c.KeyOf == KeyHeader || c.KeyOf == KeyBody {
		r.Key, r.KeyOf = uint64(c.Key), c.KeyOf
	}
	for _, l := range chain {
		r.Blocks = append(r.Blocks, Block(l))
	}
	ws := make([]View, len(c.Candidates))
	for i := range ws {
		ws[i] = c.Candidates[i].view()
		if c.Pinned != "" && c.Candidates[i].Worker == c.Pinned {
			r.pinned = i + 1
		}
	}
	return r, ws
}

// maxHalved reduces every weight to 0.
const maxHalved = 64

// Check returns an error unless a pool can have shown a policy exactly these candidates, in
// this order. The error is ErrIncomplete if candidates are missing.
func (c *Choice) Check() error {
	if err := c.check(); err != nil {
		return err
	}
	for i := range c.Candidates {
		if v := &c.Candidates[i]; i > 0 && v.Index <= c.Candidates[i-1].Index || c.CandidateOf(v.Worker) != v {
			return fmt.Errorf("the candidate %q is listed twice or out of order: candidates must be in the order of their index",
				v.Worker)
		}
	}
	return nil
}

// check returns an error if a policy must not be shown the candidates: a record may come from
// any file.
func (c *Choice) check() error {
	if c == nil || len(c.Candidates) == 0 || len(c.Candidates) < c.Seen {
		return ErrIncomplete
	}
	if c.Halved < 0 || c.Halved > maxHalved {
		return fmt.Errorf("halved is %d: it must be from 0 to %d", c.Halved, maxHalved)
	}
	for i := range c.Candidates {
		v := &c.Candidates[i]
		if v.Weight < 1 || v.Weight > maxWeight {
			return fmt.Errorf("the candidate %q has weight %d: it must be from 1 to %d", v.Worker, v.Weight, maxWeight)
		}
		if v.Effective < 0 || v.Effective > float64(v.Weight) {
			return fmt.Errorf("the candidate %q has effective_weight %v: it must be from 0 to its weight", v.Worker,
				v.Effective)
		}
		if v.Index < 0 || v.Index >= maxSlots {
			return fmt.Errorf("the candidate %q has index %d: it must be from 0 to %d", v.Worker, v.Index, maxSlots-1)
		}
	}
	return nil
}

// view returns the View that the policy saw.
func (c *Candidate) view() View {
	return View{
		ID:             c.Worker,
		Index:          c.Index,
		Weight:         c.Weight,
		Effective:      c.Effective,
		Inflight:       c.Inflight,
		OthersInflight: c.OthersInflight,
		MaxInflight:    c.MaxInflight,
		Full:           c.Full,
		PendingTokens:  c.PendingTokens,
		OutputTokens:   c.OutputTokens,
		Overlap:        c.Overlap,
		Waiting:        c.Waiting,
		KVUsage:        c.KVUsage,
		Rate:           c.Rate,
		CachedBlocks:   c.CachedBlocks,
		Success:        c.Success,
		Latency:        c.Latency,
		StoredKeys:     c.LMCacheKeys,
		Cost:           c.Cost,
		predicted:      [sources]int64{fromLookup: c.LMCacheTokens},
		exact:          c.Events,
		stages:         c.Stages,
	}
}
