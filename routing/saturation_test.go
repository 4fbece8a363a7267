package routing

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// A worker that its own metrics saturate gets no requests while another worker can take them.
func TestSaturationRules(t *testing.T) {
	usual := Saturation{Waiting: 5, KVUsage: 0.9, StaleAfter: 5 * time.Second}
	for name, c := range map[string]struct {
		limit            Saturation
		reported         Status
		age              time.Duration
		saturated, stale bool
	}{
		"nothing said":             {usual, Status{Waiting: 99, KVUsage: 1}, 0, false, false},
		"below both":               {usual, Status{Waiting: 4, KVUsage: 0.89, LoadAt: start}, 0, false, false},
		"its queue":                {usual, Status{Waiting: 5, LoadAt: start}, 0, true, false},
		"its cache, nothing waits": {usual, Status{KVUsage: 1, LoadAt: start}, 0, false, false},
		"its cache and a request":  {usual, Status{Waiting: 1, KVUsage: 0.9, LoadAt: start}, 0, true, false},
		"as old as may be":         {usual, Status{Waiting: 5, LoadAt: start}, 5 * time.Second, true, false},
		"older":                    {usual, Status{Waiting: 5, KVUsage: 1, LoadAt: start}, 5*time.Second + 1, false, true},
		"older, and not saturated": {usual, Status{LoadAt: start}, time.Minute, false, true},
		"said after the decision":  {usual, Status{Waiting: 5, LoadAt: start}, -time.Second, true, false},
		"no limits": {Saturation{StaleAfter: time.Second}, Status{Waiting: 99, KVUsage: 1, LoadAt: start},
			time.Hour, false, false},
		"the queue alone": {Saturation{Waiting: 5}, Status{Waiting: 4, KVUsage: 1, LoadAt: start}, time.Hour, false,
			false},
		"the cache alone": {Saturation{KVUsage: 0.9}, Status{Waiting: 99, KVUsage: 0.8, LoadAt: start}, time.Hour,
			false, false},
		"the cache, some waiting": {Saturation{KVUsage: 0.9}, Status{Waiting: 1, KVUsage: 0.9, LoadAt: start}, time.Hour,
			true, false},
		"at any age":                {Saturation{Waiting: 5}, Status{Waiting: 5, LoadAt: start}, time.Hour, true, false},
		"the explicit word":         {Saturation{}, Status{Saturated: true}, 0, true, false},
		"the explicit word is kept": {usual, Status{Saturated: true, LoadAt: start}, time.Hour, true, false},
	} {
		p := poolOf(Member{ID: "a", Weight: 1})
		busy := mustAcquire(t, p) // an idle worker is not refused for metrics alone
		p.SetSaturation(c.limit)
		c.reported.Up = true
		p.Observe("a", nil, c.reported)
		now := start.Add(c.age)
		if v := p.Snapshot(now)[0]; v.Saturated != c.saturated || v.Stale != c.stale {
			t.Errorf("%s: saturated %v, stale %v", name, v.Saturated, v.Stale)
		}
		if p.StaleSeconds() != 0 {
			t.Errorf("%s: looking at it was counted", name)
		}
		_, err := p.Acquire(&Request{Now: now})
		if errors.Is(err, ErrFull) != c.saturated || err != nil && !c.saturated {
			t.Errorf("%s: Acquire returned %v", name, err)
		}
		if counted := p.StaleSeconds() > 0; counted != c.stale {
			t.Errorf("%s: counted as stale %d times", name, p.StaleSeconds())
		}
		busy.Release(Result{})
	}
}

func TestSaturatedWorkerIsSkippedAndKeepsItsGroup(t *testing.T) {
	p := poolOf(Member{ID: "a", Weight: 1}, Member{ID: "b", Weight: 1}, Member{ID: "c", Weight: 1, Group: 1})
	p.SetSaturation(Saturation{Waiting: 5, StaleAfter: time.Minute})
	for mustAcquire(t, p).Worker().ID() != "a" { // no worker is idle
	}
	p.Observe("a", nil, Status{Up: true, Waiting: 9, LoadAt: start})
	for range 9 {
		if l := mustAcquire(t, p); l.Worker().ID() != "b" {
			t.Errorf("%s was chosen", l.Worker().ID())
		}
	}
	p.Observe("b", nil, Status{Up: true, Waiting: 9, LoadAt: start})
	if _, err := p.Acquire(ask()); !errors.Is(err, ErrFull) {
		t.Errorf("both are saturated: %v", err)
	}
	p.SetSaturation(Saturation{Waiting: 10, StaleAfter: time.Minute})
	mustAcquire(t, p)
}

// Between two reports the queue of a saturated engine is the reported one, less the requests that
// ended and plus the requests that were sent since.
func TestEngineQueueIsExtrapolatedBetweenReports(t *testing.T) {
	p := poolOf(Member{ID: "a", Weight: 1})
	p.SetSaturation(Saturation{Waiting: 5, StaleAfter: time.Minute})
	var leases []*Lease
	for range 20 {
		leases = append(leases, mustAcquire(t, p))
	}
	end := func() {
		leases[0].Release(Result{})
		leases = leases[1:]
	}
	p.Observe("a", nil, Status{Up: true, Waiting: 7, LoadAt: start})
	for ended := range 3 {
		if v := p.Snapshot(start)[0]; !v.Saturated || v.Waiting != 7 {
			t.Errorf("after %d ended: %+v", ended, v)
		}
		end()
	}
	leases = append(leases, mustAcquire(t, p)) // the one that makes it five again
	if _, err := p.Acquire(ask()); !errors.Is(err, ErrFull) {
		t.Errorf("a sixth was let in: %v", err)
	}
	p.Observe("a", nil, Status{Up: true, Waiting: 7, LoadAt: start}) // no new metrics
	end()
	mustAcquire(t, p)
	p.Observe("a", nil, Status{Up: true, Waiting: 5, LoadAt: start.Add(1)}) // a new count
	if _, err := p.Acquire(ask()); !errors.Is(err, ErrFull) {
		t.Errorf("fresh metrics report five waiting requests: %v", err)
	}
	for range 10 {
		end()
	}
	for range 9 { // ten ended: after nine others four wait
		mustAcquire(t, p)
	}
	if v := p.Snapshot(start)[0]; v.Saturated {
		t.Errorf("%+v", v)
	}
	p.Observe("a", nil, Status{Up: true, LoadAt: start.Add(2)})
	for range 100 { // an empty queue says nothing of how many more there is room for
		mustAcquire(t, p)
	}
}

func TestStaleMetricsCountOncePerSecondAndWorker(t *testing.T) {
	p := poolOf(Member{ID: "a", Weight: 1}, Member{ID: "b", Weight: 1}, Member{ID: "c", Weight: 1})
	p.SetSaturation(Saturation{Waiting: 5, StaleAfter: time.Second})
	for _, id := range []string{"a", "b"} {
		p.Observe(id, nil, Status{Up: true, Waiting: 9, LoadAt: start})
	}
	for ms := range 4000 { // fresh in the first second
		l, err := p.Acquire(&Request{Now: start.Add(time.Duration(ms+1) * time.Millisecond)})
		if err != nil {
			t.Fatal(err)
		}
		l.Release(Result{})
	}
	if n := p.StaleSeconds(); n != 6 {
		t.Errorf("counted %d times in three seconds for two workers", n)
	}
}

func TestRoundRespectsSaturation(t *testing.T) {
	p := poolOf(Member{ID: "a", Weight: 1})
	p.SetSaturation(Saturation{Waiting: 5, StaleAfter: time.Second})
	mustAcquire(t, p)
	p.Observe("a", nil, Status{Up: true, Waiting: 9, LoadAt: start})
	for age, open := range map[time.Duration]bool{0: false, time.Minute: true} {
		r := p.BeginRound(start.Add(age))
		if r.Open() != open {
			t.Errorf("after %s it is open: %v", age, !open)
		}
		r.End()
	}
}

// TestIdleWorkersStayEligibleWhenMetricsAloneSaturateThePool: each idle worker takes one request.
// Metrics that stay high for another reason do not block idle workers.
func TestIdleWorkersStayEligibleWhenMetricsAloneSaturateThePool(t *testing.T) {
	full := Status{Up: true, Waiting: 9, KVUsage: 1, LoadAt: start}
	for name, c := range map[string]struct {
		members  []Member
		reported map[string]Status // of the members with other metrics than full
		want     []string          // the workers of the requests before the first ErrFull
	}{
		"all by metrics": {[]Member{{ID: "a"}, {ID: "b"}}, nil, []string{"a", "b"}},
		"one is not": {[]Member{{ID: "a"}, {ID: "b", MaxInflight: 2}}, map[string]Status{"b": {Up: true}},
			[]string{"b", "b"}},
		"one is down": {[]Member{{ID: "a"}, {ID: "b"}}, map[string]Status{"b": {}}, []string{"a"}},
		"by its own word": {[]Member{{ID: "a"}, {ID: "b"}},
			map[string]Status{"b": {Up: true, Saturated: true}}, []string{"a"}},
		"the lowest group": {[]Member{{ID: "a", Group: 1}, {ID: "b"}}, nil, []string{"b"}},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range c.members {
				c.members[i].Weight = 1
			}
			p := poolOf(c.members...)
			p.SetSaturation(Saturation{Waiting: 5, KVUsage: 0.9, StaleAfter: time.Minute})
			for _, m := range c.members {
				status, other := c.reported[m.ID]
				if !other {
					status = full
				}
				p.Observe(m.ID, nil, status)
			}
			var got []string
			for {
				r := p.BeginRound(start)
				open := r.Open()
				r.End()
				l, err := p.Acquire(ask())
				if !open && err == nil {
					t.Error("a round finds no free worker, and Acquire finds one")
				}
				if err != nil {
					if !errors.Is(err, ErrFull) {
						t.Error(err)
					}
					break
				}
				got = append(got, l.Worker().ID())
			}
			slices.Sort(got)
			if !slices.Equal(got, c.want) {
				t.Errorf("requests went to %v, want %v", got, c.want)
			}
		})
	}
}
