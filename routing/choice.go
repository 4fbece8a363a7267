package routing

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"time"
)

// MaxCandidates is the number of candidates that a Choice keeps, which take about 34 KB. For a
// larger pool it keeps the first members, the chosen worker and the runner-up; such a pick
// cannot be decided again.
const MaxCandidates = 128

// Choice is the record of one pick: everything that the policy saw, and the result. A pick
// fills it under the pool's lock if Request.Record is set.
type Choice struct {
	Policy string  `json:"policy"`
	Key    Hash    `json:"key,omitzero"`     // key by which a hashing policy placed the request
	KeyOf  string  `json:"key_of,omitempty"` // what Key identifies, such as KeySession; empty without a key
	Memory float64 `json:"memory,omitempty"` // the policy's memory before this request
	// how often a hashing policy halved the points of each worker to fit its ring
	Halved       int     `json:"halved,omitempty"`
	Rule         int     `json:"rule,omitempty"`         // Request.Rule
	Pinned       string  `json:"pinned,omitempty"`       // the session's worker by an earlier request
	Rand         Hash    `json:"rand"`                   // Request.Rand
	PromptTokens int64   `json:"prompt_tokens"`          // as booked
	OutputTokens int64   `json:"expected_output_tokens"` // as booked
	WaitedMs     float64 `json:"waited_ms,omitempty"`
	Waits        bool    `json:"waits,omitempty"` // Request.Wait
	Stream       bool    `json:"stream,omitempty"`
	WorkerFull   bool    `json:"worker_full,omitempty"` // the chosen worker was full: the request waits for it
	RunnerUp     string  `json:"runner_up,omitempty"`   // the next best worker; empty with one candidate
	Traffic      Traffic `json:"traffic,omitzero"`
	// the decision in a pool whose workers compute prompts for each other; nil without one
	Handover   *HandoverChoice `json:"handover,omitempty"`
	Seen       int             `json:"seen"` // candidates, of which at most MaxCandidates are kept
	Candidates []Candidate     `json:"candidates"`
}

// Candidate is one worker of a pick: the fields of its View, its score and the score's terms.
type Candidate struct {
	Worker   string  `json:"worker"`
	Index    int     `json:"index"`              // position among the members of the pool
	Score    float64 `json:"score"`              // lower is better
	Excluded string  `json:"excluded,omitempty"` // why it could not be chosen, in one word; empty if it could
	Weight   int     `json:"weight"`
	// weight in force if the worker fails requests, less than Weight
	Effective      float64      `json:"effective_weight,omitempty"`
	Inflight       int          `json:"inflight"`
	OthersInflight int          `json:"other_gateways_inflight,omitempty"` // part of Inflight that other gateways have booked
	MaxInflight    int          `json:"max_inflight,omitempty"`
	Full           bool         `json:"full,omitempty"`
	PendingTokens  int64        `json:"pending_tokens"`
	OutputTokens   int64        `json:"output_tokens"`
	Overlap        int64        `json:"overlap_tokens"`
	Waiting        int          `json:"waiting,omitempty"`
	KVUsage        float64      `json:"kv_usage,omitempty"`
	Rate           float64      `json:"prefill_rate"`
	CachedBlocks   int          `json:"cached_blocks,omitempty"`
	Success        float64      `json:"success,omitempty"`
	Latency        LatencyFacts `json:"latency,omitzero"`
	Events         bool         `json:"kv_events,omitempty"` // Overlap comes from the worker's cache events
	// Leading prompt tokens that LMCache's controller says the worker has; 0: it says nothing of the worker. Overlap comes
	// from there if both are equal.
	LMCacheTokens int64     `json:"lmcache_tokens,omitempty"`
	LMCacheKeys   int64     `json:"lmcache_keys,omitempty"` // keys that the worker has in LMCache
	Stages        Stages    `json:"stages,omitempty"`       // only in a pool with a hand-over
	Cost          CostFacts `json:"cost,omitzero"`
	Terms         Terms     `json:"terms,omitzero"`
}

// The reasons why a policy excludes a candidate.
const (
	ExcludedRequests = "requests"  // over its bound on requests
	ExcludedTokens   = "tokens"    // over its bound on tokens
	ExcludedFull     = "full"      // it takes no request before a release
	ExcludedNotDrawn = "not_drawn" // not among the workers drawn at random
)

// maxTerms is the number of terms that a score can have.
const maxTerms = 4

// Terms are the named parts of a score, in the policy's order.
type Terms struct {
	names  *[maxTerms]string
	values [maxTerms]float64
}

// IsZero reports whether there are no terms.
func (t Terms) IsZero() bool { return t.names == nil }

// Get returns the term of that name, or 0 if there is none.
func (t Terms) Get(name string) float64 {
	if t.names != nil && name != "" {
		if i := slices.Index(t.names[:], name); i >= 0 {
			return t.values[i]
		}
	}
	return 0
}

// All calls f for each term, in order.
func (t Terms) All(f func(name string, value float64)) {
	if t.names == nil {
		return
	}
	for i, name := range t.names {
		if name != "" {
			f(name, t.values[i])
		}
	}
}

// MarshalJSON returns an object with one number for each term.
func (t Terms) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	t.All(func(name string, value float64) {
		if len(b) > 1 {
			b = append(b, ',')
		}
		quoted, _ := json.Marshal(name) // a string cannot fail
		b = append(append(b, quoted...), ':')
		b = strconv.AppendFloat(b, finite(value), 'g', -1, 64)
	})
	return append(b, '}'), nil
}

// UnmarshalJSON reads an object; of its numbers it keeps the first four.
func (t *Terms) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	*t = Terms{}
	names := new([maxTerms]string)
	if first, err := d.Token(); err != nil || first == nil {
		return err // null has no terms
	} else if first != json.Delim('{') {
		return errors.New("the terms of a score must be an object")
	}
	for i := 0; d.More(); i++ {
		name, err := d.Token()
		var value float64
		if err == nil {
			err = d.Decode(&value)
		}
		if err != nil {
			return err
		}
		if s, ok := name.(string); ok && i < maxTerms {
			names[i], t.values[i], t.names = s, value, names
		}
	}
	return nil
}

// finite replaces infinity by the largest number and NaN by 0, because JSON has neither.
func finite(x float64) float64 {
	if math.IsNaN(x) {
		return 0
	}
	return max(-math.MaxFloat64, min(x, math.MaxFloat64))
}

// assessment is what a policy found for one candidate of a recorded pick.
type assessment struct {
	score    float64
	excluded string
	terms    Terms
}

// assess records a candidate's score and exclusion if the pick is recorded.
func (r *Request) assess(i int, score float64, passed string) {
	if r.assessments != nil {
		r.assessments[i].score, r.assessments[i].excluded = score, passed
	}
}

// assessByLoad records the load of each candidate as its score, if the pick is recorded.
func (r *Request) assessByLoad(ws []View) {
	for i := range r.assessments {
		r.assessments[i] = assessment{score: ws[i].score(), excluded: exclusionIfFull(&ws[i])}
	}
}

// excludeUndrawn records that only these two candidates were drawn, if the pick is recorded.
func (r *Request) excludeUndrawn(first, second int) {
	for i := range r.assessments {
		if i != first && i != second {
			r.assessments[i].excluded = ExcludedNotDrawn
		}
	}
}

// exclusionIfFull returns ExcludedFull for a full worker, otherwise "".
func exclusionIfFull(v *View) string {
	if v.Full {
		return ExcludedFull
	}
	return ""
}

// recalled returns the record of the pick if the policy p decides its own pick again,
// otherwise nil. Such a pick uses the memory in the record.
func (r *Request) recalled(p Policy) *Choice {
	if c := r.recorded; c != nil && c.Policy == p.Name() {
		return c
	}
	return nil
}

// CandidateOf returns the candidate of that worker, or nil if there is none.
func (c *Choice) CandidateOf(worker string) *Candidate {
	for i := range c.Candidates {
		if c.Candidates[i].Worker == worker {
			return &c.Candidates[i]
		}
	}
	return nil
}

// begin records the facts that are known before the pick.
func (c *Choice) begin(policy string, r *Request) {
	*c = Choice{
		Policy:       policy,
		Rule:         r.Rule,
		Key:          Hash(r.Key),
		KeyOf:        r.KeyOf,
		Rand:         Hash(r.Rand),
		PromptTokens: booked(r.PromptTokens),
		OutputTokens: booked(r.OutputTokens),
		WaitedMs:     float64(r.Waited) / float64(time.Millisecond),
		Waits:        r.Wait,
		Stream:       r.Stream,
		Traffic:      r.traffic,
		Candidates:   c.Candidates[:0],
	}
}

// finish records the candidates and the runner-up: second, or if that is -1 the candidate with
// the best assessment after the chosen one. It always keeps these two.
func (c *Choice) finish(ws []View, marks []assessment, chosen, second int) {
	c.Seen, c.WorkerFull = len(ws), ws[chosen].Full
	if second < 0 {
		second = best(marks, chosen)
	}
	owed := 1
	if second >= 0 {
		owed, c.RunnerUp = 2, ws[second].ID
	}
	for i := range ws {
		keep := i == chosen || i == second
		if keep {
			owed--
		}
		if keep || len(c.Candidates)+owed < MaxCandidates {
			c.Candidates = append(c.Candidates, candidate(&ws[i], &marks[i]))
		}
	}
}

// best returns the candidate with the best assessment other than beside, or -1.
func best(marks []assessment, beside int) int {
	best := -1
	for i := range marks {
		if i != beside && (best < 0 || marks[i].before(&marks[best])) {
			best = i
		}
	}
	return best
}

// before reports whether a candidate ranks before another one.
func (m *assessment) before(other *assessment) bool {
	if (m.excluded == "") != (other.excluded == "") {
		return m.excluded == ""
	}
	return m.score < other.score
}

func candidate(v *View, m *assessment) Candidate {
	return Candidate{
		Worker:         v.ID,
		Index:          v.Index,
		Score:          finite(m.score),
		Excluded:       m.excluded,
		Weight:         v.Weight,
		Effective:      v.Effective,
		Inflight:       v.Inflight,
		OthersInflight: v.OthersInflight,
		MaxInflight:    v.MaxInflight,
		Full:           v.Full,
		PendingTokens:  v.PendingTokens,
		OutputTokens:   v.OutputTokens,
		Overlap:        v.Overlap,
		Waiting:        v.Waiting,
		KVUsage:        finite(v.KVUsage),
		Rate:           v.Rate,
		CachedBlocks:   v.CachedBlocks,
		Success:        v.Success,
		Latency:        v.Latency,
		Events:         v.exact,
		LMCacheTokens:  v.predicted[fromLookup],
		LMCacheKeys:    v.StoredKeys,
		Stages:         v.stages,
		Cost:           v.Cost,
		Terms:          m.terms,
	}
}
