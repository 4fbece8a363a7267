package routing

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// excludedText writes the excluded members of a preview as "id why rest, …".
func excludedText(o *Preview) string {
	var s []string
	for _, p := range o.Excluded {
		of := p.Worker + " " + p.Why
		if !p.Until.IsZero() {
			of += " " + p.Until.Sub(start).String()
		}
		s = append(s, of)
	}
	return strings.Join(s, ", ")
}

// TestPreviewAccountsForEveryMember: a member that the policy is not shown has the first reason that
// applies, also if no member is shown.
func TestPreviewAccountsForEveryMember(t *testing.T) {
	abc := []Member{{ID: "a", Weight: 1, MaxInflight: 1, Ref: 1}, {ID: "b", Weight: 1, Ref: 2},
		{ID: "c", Weight: 1, Group: 1, Ref: 3}}
	for name, c := range map[string]struct {
		members []Member // nil: abc
		policy  Policy   // nil: least_load
		do      func(p *Pool, r *Request)
		tried   []int // by index
		worker  string
		others  string
		err     error
	}{
		"idle":      {worker: "b", others: "c group"},
		"no worker": {members: []Member{}, err: ErrNoWorker},
		"one down":  {do: func(p *Pool, _ *Request) { p.Observe("a", 1, Status{}) }, worker: "b", others: "a down, c group"},
		"no weight": {members: []Member{{ID: "a"}, {ID: "b", Weight: 1}}, worker: "b", others: "a no_weight"},
		"the model": {members: []Member{{ID: "a", Weight: 1, Models: []uint64{1}}, {ID: "b", Weight: 1, Models: []uint64{2}}},
			do: func(_ *Pool, r *Request) { r.Model = 1 }, worker: "a", others: "b model"},
		"not asked": {do: func(_ *Pool, r *Request) { r.Only = 3 }, worker: "c", others: "a other_worker, b other_worker"},
		"tried":     {tried: []int{0}, worker: "b", others: "a tried, c group"},
		"all tried": {tried: []int{0, 1, 2}, others: "a tried, b tried, c tried", err: ErrNoWorker},
		"full":      {do: func(p *Pool, _ *Request) { p.workers[0].inflight = 1 }, worker: "b", others: "a full, c group"},
		"saturated": {do: func(p *Pool, _ *Request) { p.Observe("b", 2, Status{Up: true, Saturated: true}) }, worker: "a",
			others: "b saturated, c group"},
		"by metrics": {do: func(p *Pool, _ *Request) {
			p.SetSaturation(Saturation{KVUsage: 0.9})
			p.Observe("b", 2, Status{Up: true, Waiting: 1, KVUsage: 0.95, LoadAt: start})
		}, worker: "a", others: "b saturated, c group"},
		"group full": {do: func(p *Pool, _ *Request) {
			p.workers[0].inflight = 1
			p.Observe("b", 2, Status{Up: true, Saturated: true})
		}, others: "a full, b saturated, c group", err: ErrFull},
		"all but the next group in backoff": {do: func(p *Pool, _ *Request) {
			p.SetBackoff(p.workers[0], start.Add(time.Second))
			p.SetBackoff(p.workers[1], start.Add(2*time.Second))
		}, worker: "c", others: "a backoff 1s, b backoff 2s"},
		"all in backoff": {do: func(p *Pool, _ *Request) {
			for i, w := range p.workers {
				p.SetBackoff(w, start.Add(time.Duration(i+1)*time.Second))
			}
		}, others: "a backoff 1s, b backoff 2s, c backoff 3s", err: &BackoffError{Until: start.Add(time.Second)}},
		"all open": {do: func(p *Pool, _ *Request) {
			for i, w := range p.workers {
				p.SetOpen(w.id, w.ref, start.Add(time.Duration(i+1)*time.Second))
			}
			p.SetBackoff(p.workers[0], start.Add(500*time.Millisecond)) // is over before
			p.SetBackoff(p.workers[1], start.Add(9*time.Second))        // lasts longer
		}, others: "a open 1s, b backoff 9s, c open 3s", err: &OpenError{Until: start.Add(time.Second)}},
		"all down": {do: func(p *Pool, _ *Request) {
			for _, w := range p.workers {
				p.Observe(w.id, w.ref, Status{})
			}
		}, others: "a down, b down, c down", err: ErrNoWorker},
		"slow start": {do: func(p *Pool, r *Request) {
			p.Restore("b", 2, start.Add(-time.Second))
			p.Restore("c", 3, start)
			p.workers[1].inflight, r.Wait = 5, true
		}, worker: "a", others: "b slow_start 9s, c group"},
		"down before all else": {do: func(p *Pool, _ *Request) {
			p.Observe("a", 1, Status{Saturated: true})
			p.SetBackoff(p.workers[0], start.Add(time.Second))
			p.workers[0].inflight = 1
		}, tried: []int{0}, worker: "b", others: "a down, c group"},
		"a planner is shown full ones": {policy: &wanting{}, do: func(p *Pool, r *Request) {
			p.workers[0].inflight, r.Wait, r.Prefix = 1, true, 1
		}, worker: "b", others: "c group"},
		"a planner holds": {policy: &wanting{}, do: func(p *Pool, r *Request) {
			p.workers[0].inflight, r.Wait = 1, true
		}, worker: "a", others: "c group", err: ErrBestWorkerFull},
		"a planner's are all full": {policy: &wanting{}, members: abc[:1], do: func(p *Pool, r *Request) {
			p.workers[0].inflight, r.Wait = 1, true
		},
			worker: "a", err: ErrFull},
		"a planner is not shown slow start": {policy: &wanting{}, do: func(p *Pool, r *Request) {
			p.Restore("a", 1, start.Add(-time.Second))
			p.workers[0].inflight, r.Wait, r.Prefix = 1, true, 1
		}, worker: "b", others: "a slow_start 9s, c group"},
	} {
		members, policy := c.members, c.policy
		if members == nil {
			members = abc
		}
		if policy == nil {
			policy = leastLoad{}
		}
		p, r := poolOf(members...), ask()
		p.Configure(policy, members)
		if c.do != nil {
			c.do(p, r)
		}
		var tried []*Worker
		for _, i := range c.tried {
			tried = append(tried, p.workers[i])
		}
		for what, draft := range map[string]*Draft{"live": nil,
			"as a draft": {Policy: policy, Members: members, Limit: p.saturation}} {
			o, err := p.Preview(r, draft, tried...)
			if o.Worker != c.worker || excludedText(&o) != c.others || !sameError(err, c.err) ||
				o.WorkerFull != (c.worker != "" && err != nil) {
				t.Errorf("%s, %s: %q (held: %v), others %q, %v, not %q, others %q, %v", name, what, o.Worker, o.WorkerFull,
					excludedText(&o), err, c.worker, c.others, c.err)
			}
			if picked := o.Worker != ""; picked != (o.Reason != "") || picked != (o.Choice.CandidateOf(o.Worker) != nil) ||
				len(o.Excluded)+o.Choice.Seen != len(members) {
				t.Errorf("%s, %s: the preview is %+v", name, what, o)
			}
		}
		if l, err := p.Acquire(r, tried...); !sameError(err, c.err) || err == nil && l.worker.id != c.worker {
			t.Errorf("%s: the request ended with %v", name, err)
		}
	}
}

func sameError(a, b error) bool { return fmt.Sprintf("%T %v", a, a) == fmt.Sprintf("%T %v", b, b) }

// TestNewMemberOfADraftIsUpAndIdle, and the other members keep their load and learned values.
func TestNewMemberOfADraftIsUpAndIdle(t *testing.T) {
	members := []Member{{ID: "a", Weight: 1, Ref: "one"}, {ID: "b", Weight: 1, Ref: "two"}}
	p := poolOf(members...)
	r := ask()
	r.Blocks, r.Stream = prompt(1, 0, 8), true
	for range 2 { // one on each
		l, err := p.Acquire(r)
		if err != nil {
			t.Fatal(err)
		}
		l.Answered(start, nil)
	}
	p.learnQuantityLocked(p.workers[0], prefillRate, 100)
	before := p.Estimates()
	draft := &Draft{Policy: leastLoad{}, Members: []Member{{ID: "c", Weight: 1, Ref: "three"}, members[1]}}
	o, err := p.Preview(r, draft)
	if err != nil || o.Worker != "c" || o.Choice.RunnerUp != "b" {
		t.Fatalf("the preview under the draft is %+v (%v)", o, err)
	}
	c, b := o.Choice.Candidates[0], o.Choice.Candidates[1]
	if c.Inflight != 0 || c.Overlap != 0 || c.Rate != rateLimits.prior || b.Inflight != 1 || b.Overlap != r.PromptTokens ||
		b.Index != 1 {
		t.Errorf("the draft's workers are %+v and %+v", c, b)
	}
	if _, err := p.Preview(r, &Draft{Policy: leastLoad{}}); !errors.Is(err, ErrNoWorker) {
		t.Errorf("a draft without members: %v", err)
	}
	if after := p.Estimates(); !reflect.DeepEqual(before, after) || p.learned.median[prefillRate] != 100 {
		t.Errorf("after the drafts the pool has learned %+v, and had %+v", after, before)
	}
	if got := books(p); got != "a 1 0 10, b 1 0 10" || len(p.workers) != 2 || p.policy != (leastLoad{}) {
		t.Errorf("after the drafts the books show %s", got)
	}
}

// TestDraftExcludesTriedWorkers: the same worker with another weight, but not a later worker of the
// same name.
func TestDraftExcludesTriedWorkers(t *testing.T) {
	members := []Member{{ID: "a", Weight: 1, Ref: 1}, {ID: "b", Weight: 1, Ref: 2}}
	p := poolOf(members...)
	a := p.workers[0]
	heavier := []Member{{ID: "b", Weight: 1, Ref: 2}, {ID: "a", Weight: 9, Ref: 1}}
	o, err := p.Preview(ask(), &Draft{Policy: leastLoad{}, Members: heavier}, a)
	if err != nil || o.Worker != "b" || excludedText(&o) != "a tried" {
		t.Errorf("the preview under the draft is %+v (%v)", o, err)
	}
	members[0].Ref = 3
	p.Configure(leastLoad{}, members)
	p.Observe("a", 3, Status{Up: true})
	for _, draft := range []*Draft{nil, {Policy: leastLoad{}, Members: heavier}} {
		if o, err := p.Preview(ask(), draft, a); err != nil || len(o.Excluded) > 0 {
			t.Errorf("after another one came, %+v (%v)", o, err)
		}
	}
}

// TestPreviewChangesNoCounter: neither stale metrics nor the mark that a request was learned.
func TestPreviewChangesNoCounter(t *testing.T) {
	p := poolOf(Member{ID: "a", Weight: 1, MaxInflight: 1}, Member{ID: "b", Weight: 1, MaxInflight: 1})
	p.SetSaturation(Saturation{Waiting: 1, StaleAfter: time.Second})
	p.Observe("a", nil, Status{Up: true, Waiting: 5, LoadAt: start.Add(-time.Minute)})
	r := ask()
	before := *r
	for _, draft := range []*Draft{nil,
		{Policy: leastLoad{}, Members: []Member{{ID: "a", Weight: 2}}, Limit: p.saturation}} {
		if o, err := p.Preview(r, draft); err != nil || o.Worker == "" {
			t.Fatal(err)
		}
	}
	if p.StaleSeconds() != 0 || !reflect.DeepEqual(before, *r) {
		t.Errorf("%d old metrics were counted, and the request is %+v", p.StaleSeconds(), r)
	}
	if l, err := p.Acquire(r); err != nil || p.StaleSeconds() != 1 || !slices.Contains([]string{"a", "b"}, l.worker.id) {
		t.Errorf("%d old metrics were counted (%v)", p.StaleSeconds(), err)
	}
}

// TestDraftHasItsOwnSaturation, and the pool keeps its own.
func TestDraftHasItsOwnSaturation(t *testing.T) {
	members := []Member{{ID: "a", Weight: 1}, {ID: "b", Weight: 1}}
	p := poolOf(members...)
	p.SetSaturation(Saturation{Waiting: 5})
	p.Observe("a", nil, Status{Up: true, Waiting: 4, LoadAt: start})
	for limit, others := range map[Saturation]string{{}: "", {Waiting: 5}: "", {Waiting: 3}: "a saturated"} {
		o, err := p.Preview(ask(), &Draft{Policy: leastLoad{}, Members: members, Limit: limit})
		if err != nil || excludedText(&o) != others {
			t.Errorf("with %+v: others %q (%v), want %q", limit, excludedText(&o), err, others)
		}
	}
	if o, err := p.Preview(ask(), nil); err != nil || len(o.Excluded) > 0 || p.saturation.Waiting != 5 {
		t.Errorf("after the drafts: %+v (%v), by %+v", o, err, p.saturation)
	}
}

// TestDraftMatchesWorkersInAnyOrder, among new workers, and in large pools.
func TestDraftMatchesWorkersInAnyOrder(t *testing.T) {
	const workers = 1000
	members := make([]Member, workers)
	for i := range members {
		members[i] = Member{ID: fmt.Sprint("w", i), Weight: 1, MaxInflight: 1}
	}
	p := poolOf(members...)
	for i, w := range p.workers {
		w.inflight = min(1, i%7) // all but each seventh are full
	}
	other := []Member{{ID: "none", Weight: 0}}
	for i := range members {
		other = append(other, members[(i*7+3)%workers])
	}
	for name, draft := range map[string][]Member{"the same": members, "another order": other} {
		o, err := p.Preview(ask(), &Draft{Policy: leastLoad{}, Members: draft})
		if err != nil || o.Choice.Seen != (workers+6)/7 || len(o.Excluded) != len(draft)-o.Choice.Seen {
			t.Fatalf("%s: %d seen, %d others (%v)", name, o.Choice.Seen, len(o.Excluded), err)
		}
		for _, is := range o.Excluded {
			if (is.Why == ExcludedFull) != (is.Worker != "none") {
				t.Fatalf("%s: %+v", name, is)
			}
		}
	}
}
