package routing

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"
)

// usualHealth is the default rule of a configuration that turns it on.
var usualHealth = HealthWeight{Healthy: 0.9, Degraded: 0.7, Factor: 0.5}

// TestWeightShareHasNoJumps: it falls from 1 over the factor to the square of the factor, and a small change of
// the success ratio changes it little.
func TestWeightShareHasNoJumps(t *testing.T) {
	for ratio, want := range map[float64]float64{1: 1, 0.9: 1, 0.85: 0.875, 0.8: 0.75, 0.7: 0.5, 0.35: 0.375, 0: 0.25} {
		if got := usualHealth.share(ratio); math.Abs(got-want) > 1e-9 {
			t.Errorf("at a success ratio of %v the share is %v, want %v", ratio, got, want)
		}
	}
	for ratio := 0.0; ratio < 1; ratio += 0.001 {
		if rise := usualHealth.share(ratio+0.001) - usualHealth.share(ratio); rise < 0 || rise > 0.003 {
			t.Errorf("from a success ratio of %v the share changes by %v", ratio, rise)
		}
	}
	if off := (HealthWeight{}); off.share(0) != 1 {
		t.Error("without a rule the share is not 1")
	}
}

// healthSim is a pool of two workers with Poisson arrivals. fails reports whether a request on the first
// one fails. A request takes a second on average.
type healthSim struct {
	pool   *Pool
	now    time.Time
	rng    rng
	rate   float64 // requests per second
	fails  func() bool
	before func() // called before each pick
	ends   []healthEnd
	took   [2]int
}

type healthEnd struct {
	at    time.Time
	lease Lease
}

func newHealthSim(t *testing.T, policy string, rate float64, a, b int) *healthSim {
	t.Helper()
	picker, err := New(Config{Name: policy})
	if err != nil {
		t.Fatal(err)
	}
	members := []Member{{ID: "a", Weight: a}, {ID: "b", Weight: b}}
	s := &healthSim{pool: poolOf(members...), now: start, rng: 11, rate: rate}
	s.pool.Configure(picker, members)
	s.pool.SetHealthWeight(usualHealth)
	s.fails, s.before = func() bool { return false }, func() {}
	return s
}

// send sends n requests with different prompts.
func (s *healthSim) send(t *testing.T, n int) {
	t.Helper()
	for range n {
		s.now = s.now.Add(s.rng.exp(time.Duration(float64(time.Second) / s.rate)))
		for len(s.ends) > 0 && !s.now.Before(s.ends[0].at) {
			r := Result{At: s.ends[0].at}
			if s.ends[0].lease.Worker().ID() == "a" && s.fails() {
				r.Err = errors.New("failed")
			}
			s.ends[0].lease.Release(r)
			s.ends = s.ends[1:]
		}
		s.before()
		key := s.rng.next()
		l, err := s.pool.Acquire(&Request{Now: s.now, Rand: s.rng.next(), Prefix: key, PromptTokens: 100, OutputTokens: 100,
			Blocks: []Block{{Hash: key, End: 400}}})
		if err != nil {
			t.Fatal(err)
		}
		s.took[slices.Index(s.pool.workers, l.Worker())]++
		s.ends = append(s.ends, healthEnd{s.now.Add(s.rng.exp(time.Second)), l})
		slices.SortStableFunc(s.ends, func(a, b healthEnd) int { return a.at.Compare(b.at) })
	}
}

// ratio returns the requests of the first worker divided by those of the second one, and forgets both.
func (s *healthSim) ratio() float64 {
	r := float64(s.took[0]) / float64(s.took[1])
	s.took = [2]int{}
	return r
}

// TestEffectiveWeightCountsLikeAConfiguredWeight: under every policy that follows weights, a worker of weight 4
// that keeps three quarters of it gets the requests of a worker of weight 3. The policies that ignore weights give
// it three quarters of its peer's requests.
func TestEffectiveWeightCountsLikeAConfiguredWeight(t *testing.T) {
	for _, policy := range Names() {
		for _, rate := range []float64{0.3, 30} {
			want, s := 0.75, newHealthSim(t, policy, rate, 3, 4)
			if policy != "random" && policy != "round_robin" {
				s.send(t, 6000)
				want = s.ratio()
			}
			s = newHealthSim(t, policy, rate, 4, 4)
			s.before = func() { s.pool.workers[0].success = successRatio{50, 10, s.now} } // 80 %
			s.send(t, 6000)
			if got := s.ratio(); math.Abs(got-want) > 0.03*want {
				t.Errorf("%s, %v requests/s: it gets %.3f times its peer's requests, want %.3f", policy, rate, got, want)
			}
		}
	}
}

// TestTrafficFollowsTheSuccessRatio: of two equal workers, one answers 80 % of its requests. It gets three quarters
// of its peer's requests, and after its recovery as many as the peer.
func TestTrafficFollowsTheSuccessRatio(t *testing.T) {
	for policy, want := range map[string]float64{"weighted_round_robin": 0.75, "least_load": 0.75, "random": 0.75,
		"power_of_two": 0.75, "round_robin": 0.75} {
		s := newHealthSim(t, policy, 30, 1, 1)
		s.fails = func() bool { return s.rng.unit() < 0.2 }
		s.send(t, 500)
		s.ratio()
		s.send(t, 10_000)
		if got := s.ratio(); math.Abs(got-want) > 0.05 {
			t.Errorf("%s: at a success ratio of 80 %% the split is %.3f, want %v", policy, got, want)
		}
		s.fails = func() bool { return false }
		s.send(t, 500)
		s.ratio()
		s.send(t, 10_000)
		if got := s.ratio(); math.Abs(got-1) > 0.05 {
			t.Errorf("%s: after its recovery the split is %.3f", policy, got)
		}
	}
}

// TestHomesFollowTheSuccessRatio: under chwbl, the keys move only from the failing worker, and back to it.
func TestHomesFollowTheSuccessRatio(t *testing.T) {
	c := mustCHWBL(t, Config{})
	ws := []View{{ID: "a", Weight: 1, Rate: 1}, {ID: "b", Index: 1, Weight: 1, Rate: 1}, {ID: "c", Index: 2, Weight: 1,
		Rate: 1}}
	homes := func() (all [3000]int) {
		for key := range all {
			all[key], _ = c.Pick(&Request{Now: start, Prefix: uint64(key + 1)}, ws)
		}
		return all
	}
	before := homes()
	ws[0].Effective = 0.5
	during, was, is := homes(), 0, 0
	for key := range before {
		if before[key] == 0 {
			was++
		} else if during[key] != before[key] {
			t.Fatalf("a key of %s moved to %s", ws[before[key]].ID, ws[during[key]].ID)
		}
		if during[key] == 0 {
			is++
		}
	}
	// of a third of the keys it keeps a fifth: 0.5 of 2.5 weights
	if share := float64(is) / float64(was); math.Abs(share-0.6) > 0.1 {
		t.Errorf("it kept %v of its keys, want 0.6", share)
	}
	ws[0].Effective = 0
	if homes() != before {
		t.Error("after the recovery the homes differ")
	}
}

// ratioOf returns the success ratio and the effective weight of a pool's first worker.
func ratioOf(p *Pool, now time.Time) (ratio, weight float64) {
	v := p.Snapshot(now)[0]
	return v.SuccessRatio, v.EffectiveWeight()
}

// TestOneFailureChangesNothing: neither of a new worker nor of one that has answered well.
func TestOneFailureChangesNothing(t *testing.T) {
	for _, good := range []int{0, 1, 10, 1000} {
		p := poolOf(Member{ID: "a", Weight: 4})
		p.SetHealthWeight(usualHealth)
		for range good {
			mustAcquire(t, p).Release(Result{At: start})
		}
		mustAcquire(t, p).Release(Result{At: start, Err: errors.New("failed")})
		if ratio, weight := ratioOf(p, start); weight != 4 || ratio < 0.95 || ratio == 1 {
			t.Errorf("after %d successes a failure leaves a ratio of %v and a weight of %v", good, ratio, weight)
		}
		if ws, err := p.showLocked(&Request{Now: start}, nil); err != nil || ws[0].Effective != 0 {
			t.Errorf("after %d successes and a failure the policy is shown %+v (%v)", good, ws, err)
		}
	}
}

// TestOutcomesOfTheSuccessRatio: the ratio counts what the breaker counts.
func TestOutcomesOfTheSuccessRatio(t *testing.T) {
	failed := errors.New("failed")
	for name, c := range map[string]struct {
		end  func(l *Lease)
		want float64 // after 40 of them
	}{
		"success":       {func(l *Lease) { l.Release(Result{At: start}) }, 1},
		"failure":       {func(l *Lease) { l.Release(Result{At: start, Err: failed}) }, 0},
		"without time":  {func(l *Lease) { l.Release(Result{Err: failed}) }, 0},
		"excluded":      {func(l *Lease) { l.Release(Result{At: start, Err: ErrExcluded}) }, 1},
		"answered":      {func(l *Lease) { l.Answered(start, nil); l.Release(Result{At: start}) }, 1},
		"failed early":  {func(l *Lease) { l.Answered(start, failed); l.Release(Result{At: start, Err: failed}) }, 0},
		"cut":           {func(l *Lease) { l.Answered(start, nil); l.Release(Result{At: start, Err: failed}) }, 0},
		"client left":   {func(l *Lease) { l.Answered(start, nil); l.Release(Result{At: start, Err: ErrExcluded}) }, 1},
		"refused there": {func(l *Lease) { l.Answered(start, ErrExcluded); l.Release(Result{Err: failed}) }, 1},
		"twice":         {func(l *Lease) { l.Release(Result{At: start}); l.Release(Result{At: start, Err: failed}) }, 1},
	} {
		p := poolOf(Member{ID: "a", Weight: 1})
		for range 40 {
			c.end(mustAcquire(t, p))
		}
		if ratio, _ := ratioOf(p, start); math.Abs(ratio-c.want) > 1e-9 {
			t.Errorf("%s: the ratio is %v, want %v", name, ratio, c.want)
		}
	}
}

// TestWeightRecoversWithTime: a worker without requests recovers within four minutes, and a restart recovers it
// at once.
func TestWeightRecoversWithTime(t *testing.T) {
	p := poolOf(Member{ID: "a", Weight: 4})
	p.SetHealthWeight(usualHealth)
	for range 200 {
		mustAcquire(t, p).Release(Result{At: start, Err: errors.New("failed")})
	}
	last := 0.0
	for s := range 241 {
		_, weight := ratioOf(p, start.Add(time.Duration(s)*time.Second))
		if weight < last || s == 0 && math.Abs(weight-1) > 1e-9 {
			t.Fatalf("after %d s the weight is %v, after %v", s, weight, last)
		}
		last = weight
	}
	if last != 4 {
		t.Errorf("after four minutes the weight is %v", last)
	}
	p.Observe("a", nil, Status{})
	p.Observe("a", nil, Status{Up: true})
	if ratio, weight := ratioOf(p, start); ratio != 1 || weight != 4 {
		t.Errorf("after a restart the ratio is %v and the weight %v", ratio, weight)
	}
}
