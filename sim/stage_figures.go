package sim

import (
	"cmp"
	"slices"
	"time"

	"tierway/routing"
)

// StageFigures summarizes where the prompts of requests were computed, and what the engines of each role did.
type StageFigures struct {
	Remote  float64 // share of the prompts that one engine computed and another one answered
	Prefill Times   // sorted, of these: from the dispatch until the prompt was computed
	Decode  Times   // sorted, of these: from there to the first token
	Token   Times   // sorted, by answer: its mean time for a token
	Roles   []RoleFigures
}

// RoleFigures is the use of the engines with one role, as means from the begin of the figures to the last submission.
type RoleFigures struct {
	Role    string // such as RolePrefill
	Engines int
	Busy    float64 // share of the time in which an engine computes prompts
	Answers float64 // answers that an engine generates at once
}

// The roles of RoleFigures.
const (
	RolePrefill = "prefill"
	RoleDecode  = "decode"
	RoleBoth    = "both"
	RoleWhole   = "whole" // without a hand-over
)

// RoleOf returns the role of an engine that serves these stages.
func RoleOf(s routing.Stages) string {
	switch {
	case s == 0:
		return RoleWhole
	case s == routing.StagePrefill:
		return RolePrefill
	case s&routing.StagePrefill == 0 && s&routing.StageDecode != 0:
		return RoleDecode
	}
	return RoleBoth
}

// stageFigures returns the figures of the requests that were submitted from that time on.
func (r *Result) stageFigures(from time.Duration) (f StageFigures) {
	answered, until := 0, from
	computing, answering := map[string][]span{}, map[string][]span{}
	for _, rec := range r.Records {
		if rec.Direct || rec.First == 0 {
			continue
		}
		until = max(until, rec.SubmittedAt)
		done := rec.Done
		if !rec.Ended {
			done = r.End
		}
		computing[cmp.Or(rec.Prefill, rec.Worker)] = append(computing[cmp.Or(rec.Prefill, rec.Worker)],
			span{rec.Started, rec.Computed})
		answering[rec.Worker] = append(answering[rec.Worker], span{rec.First, done})
		if rec.SubmittedAt < from {
			continue
		}
		answered++
		if rec.Prefill != "" {
			f.Prefill, f.Decode = append(f.Prefill, rec.Computed-rec.DispatchedAt), append(f.Decode, rec.First-rec.Computed)
		}
		if n := rec.Request.OutputTokens; rec.Answered() && n > 0 {
			f.Token = append(f.Token, (rec.Done-rec.First)/time.Duration(n))
		}
	}
	f.Remote = float64(len(f.Prefill)) / float64(max(1, answered))
	for _, t := range []Times{f.Prefill, f.Decode, f.Token} {
		t.Sort()
	}
	window := span{from, max(until, from+1)}
	for i := range r.Engines {
		e := &r.Engines[i]
		f.role(RoleOf(e.Stages)).add(window, computing[e.Name], answering[e.Name])
	}
	for i := range f.Roles {
		f.Roles[i].Busy /= float64(f.Roles[i].Engines)
		f.Roles[i].Answers /= float64(f.Roles[i].Engines)
	}
	return f
}

// role returns the figures of a role.
func (f *StageFigures) role(name string) *RoleFigures {
	at := slices.IndexFunc(f.Roles, func(r RoleFigures) bool { return r.Role == name })
	if at < 0 {
		at, f.Roles = len(f.Roles), append(f.Roles, RoleFigures{Role: name})
	}
	return &f.Roles[at]
}

// add adds one engine, which computed prompts and generated answers in these spans.
func (r *RoleFigures) add(window span, computing, answering []span) {
	r.Engines++
	length := float64(window.to - window.from)
	slices.SortFunc(computing, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	last := window.from
	for _, s := range computing { // they overlap if an engine computes several prompts in one step
		r.Busy += float64(s.within(span{last, window.to})) / length
		last = max(last, s.to)
	}
	for _, s := range answering {
		r.Answers += float64(s.within(window)) / length
	}
}

// span is an interval of time.
type span struct{ from, to time.Duration }

// within returns the length of the part that is in the window.
func (s span) within(window span) time.Duration {
	return max(0, min(s.to, window.to)-max(s.from, window.from))
}
