package routing

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

// wanting is a planner that picks the worker whose number is the request's Prefix, and records the
// views.
type wanting struct{ shown []View }

func (*wanting) Name() string        { return "wanting" }
func (*wanting) Plans(*Request) bool { return true }
func (p *wanting) Pick(r *Request, ws []View) (int, Reason) {
	p.shown = append(p.shown[:0], ws...)
	for i := range ws {
		if ws[i].Index == int(r.Prefix) {
			return i, "wanted"
		}
	}
	return -1, ""
}

// loads writes the views as "id inflight pending output", with a * after full ones.
func loads(ws []View) string {
	var s []string
	for i := range ws {
		v := &ws[i]
		s = append(s, fmt.Sprint(v.ID, " ", v.Inflight, " ", v.PendingTokens, " ", v.OutputTokens)+
			map[bool]string{true: "*"}[v.Full])
	}
	return strings.Join(s, ", ")
}

func plannedPool(members ...Member) (*Pool, *wanting) {
	p, policy := poolOf(members...), &wanting{}
	p.Configure(policy, members)
	return p, policy
}

func TestPlannerSeesTheBacklog(t *testing.T) {
	p, policy := plannedPool(
		Member{ID: "a", Weight: 1, MaxInflight: 1}, Member{ID: "b", Weight: 1, MaxInflight: 1}, Member{ID: "c", Weight: 1},
	)
	chat := prompt(1, 0, 4)
	wants := func(worker int, wait bool) *Request {
		return &Request{Prefix: uint64(worker), PromptTokens: 100, OutputTokens: 10, Wait: wait, Blocks: chat}
	}
	round := p.BeginRound(start)
	var leases []Lease
	for i, c := range []struct {
		worker int
		wait   bool
		err    error
		shown  string
	}{
		{0, true, nil, "a 0 0 0, b 0 0 0, c 0 0 0"},
		{0, true, ErrBestWorkerFull, "a 1 100 10*, b 0 0 0, c 0 0 0"},
		{0, true, ErrBestWorkerFull, "a 2 101 20*, b 0 0 0, c 0 0 0"}, // the chat is on a already
		{1, true, nil, "a 3 102 30*, b 0 0 0, c 0 0 0"},
		{0, false, nil, "c 0 0 0"}, // cannot wait
		{2, true, nil, "a 3 102 30*, b 1 100 10*, c 1 100 10"},
		{1, true, ErrBestWorkerFull, "a 3 102 30*, b 1 100 10*, c 2 101 20"},
	} {
		l, err := round.Offer(wants(c.worker, c.wait), nil)
		if !errors.Is(err, c.err) || loads(policy.shown) != c.shown {
			t.Errorf("offer %d: %v with %q shown, want %v with %q", i, err, loads(policy.shown), c.err, c.shown)
		}
		if err == nil {
			leases = append(leases, l)
		}
	}
	round.End()
	wantBooks(t, p, "a 1 100 10, b 1 100 10, c 2 101 20")
	round = p.BeginRound(start)
	if _, err := round.Offer(wants(0, true), nil); !errors.Is(err, ErrBestWorkerFull) ||
		loads(policy.shown) != "a 1 100 10*, b 1 100 10*, c 2 101 20" {
		t.Errorf("the next round: %v with %q shown", err, loads(policy.shown))
	}
	round.End()
	for i := range leases {
		if err := leases[i].Admit(); err != nil {
			t.Fatal(err)
		}
		leases[i].Release(Result{})
	}
	wantBooks(t, p, "a 0 0 0, b 0 0 0, c 0 0 0")
}

// TestErrBestWorkerFullMeansThatAnotherIsOpen: if all are full, the error is ErrFull, and the request
// waits for room on any worker.
func TestErrBestWorkerFullMeansThatAnotherIsOpen(t *testing.T) {
	p, policy := plannedPool(Member{ID: "a", Weight: 1, MaxInflight: 1}, Member{ID: "b", Weight: 1, MaxInflight: 1})
	wants := func(worker int) *Request {
		return &Request{Now: start, Prefix: uint64(worker), PromptTokens: 100, OutputTokens: 10, Wait: true}
	}
	round := p.BeginRound(start)
	for i, c := range []struct {
		worker int
		err    error
		shown  string
	}{
		{0, nil, "a 0 0 0, b 0 0 0"},
		{0, ErrBestWorkerFull, "a 1 100 10*, b 0 0 0"},
		{1, nil, "a 2 200 20*, b 0 0 0"},
		{0, ErrFull, "a 2 200 20*, b 1 100 10*"},
		{1, ErrFull, "a 3 300 30*, b 1 100 10*"},
		{7, ErrFull, "a 3 300 30*, b 2 200 20*"}, // it abstains
	} {
		if _, err := round.Offer(wants(c.worker), nil); !errors.Is(err, c.err) || loads(policy.shown) != c.shown {
			t.Errorf("offer %d: %v with %q shown, want %v with %q", i, err, loads(policy.shown), c.err, c.shown)
		}
	}
	round.End()
	if _, err := p.Acquire(wants(1)); !errors.Is(err, ErrFull) {
		t.Errorf("outside a round: %v", err)
	}
}

func TestOnlyPlannersLetRequestsWaitForAWorker(t *testing.T) {
	members := []Member{
		{ID: "full", Weight: 1, MaxInflight: 1}, {ID: "saturated", Weight: 1}, {ID: "down", Weight: 1},
		{ID: "backoff", Weight: 1},
		{ID: "open", Weight: 1}, {ID: "tried", Weight: 1}, {ID: "weightless"}, {ID: "other", Weight: 1, Models: []uint64{9}},
		{ID: "later", Weight: 1, Group: 1},
	}
	for name, c := range map[string]struct {
		policy Policy
		wait   bool
		asked  bool
	}{
		"a planner, and it can wait":    {&wanting{}, true, true},
		"a planner, and it cannot wait": {&wanting{}, false, false},
		"no planner, and it can wait":   {leastLoad{}, true, false},
		"chwbl, and it can wait":        {mustCHWBL(t, Config{}), true, true},
		"chwbl, and it cannot wait":     {mustCHWBL(t, Config{}), false, false},
	} {
		p := poolOf(members...)
		p.Configure(c.policy, members)
		if _, err := p.Acquire(&Request{Now: start}, p.workers[1:]...); err != nil {
			t.Fatal(err)
		}
		p.Observe("saturated", nil, Status{Up: true, Saturated: true})
		p.Observe("down", nil, Status{})
		p.SetBackoff(p.workers[3], start.Add(time.Second))
		p.SetOpen("open", nil, start.Add(time.Second))
		r := &Request{Model: 1, Prefix: 1, Wait: c.wait, PromptTokens: 10}
		round := p.BeginRound(start)
		if round.Open() != true { // the later group is, for requests that the first cannot serve
			t.Errorf("%s: the round reports no free worker", name)
		}
		if _, err := round.Offer(r, []*Worker{p.workers[5]}); !errors.Is(err, ErrFull) || r.learned != c.asked {
			t.Errorf("%s: %v, the policy was called: %v", name, err, r.learned)
		}
		round.End()
		r.Now, r.learned = start, false
		if _, err := p.Acquire(r, p.workers[5]); !errors.Is(err, ErrFull) || r.learned != c.asked {
			t.Errorf("%s: outside a round %v, the policy was called: %v", name, err, r.learned)
		}
		if w, ok := c.policy.(*wanting); ok && c.wait && (len(w.shown) != 1 || w.shown[0].ID != "full") {
			t.Errorf("%s: shown %q", name, loads(w.shown))
		}
	}
}

// TestWaitingRequestIsLearnedOnce: repeated offers of one request do not count as traffic.
func TestWaitingRequestIsLearnedOnce(t *testing.T) {
	policy := mustCHWBL(t, Config{})
	members := []Member{{ID: "a", Weight: 1, MaxInflight: 1}, {ID: "b", Weight: 1, MaxInflight: 1}}
	p := poolOf(members...)
	p.Configure(policy, members)
	for range 2 {
		mustAcquire(t, p)
	}
	counted := func() string {
		return fmt.Sprint(reflect.ValueOf(policy.keys).Elem().FieldByName("requests").Int(), policy.squares)
	}
	r := &Request{Prefix: 7, Blocks: prompt(1, 0, 30), PromptTokens: 1000, Wait: true}
	for i := range 10 {
		round := p.BeginRound(start.Add(time.Duration(i) * time.Second))
		if _, err := round.Offer(r, nil); !errors.Is(err, ErrFull) {
			t.Fatal(err)
		}
		round.End()
		if got := counted(); got != "1 15625" { // 1,000² over squaresMemory
			t.Fatalf("after %d offers it counted as %s requests", i+1, got)
		}
	}
}
