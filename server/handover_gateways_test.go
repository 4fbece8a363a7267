package server

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tierway/decisions"
	"tierway/memnet/memredis"
)

// another serves the engines by one more gateway, with random numbers of its own. Each old text of its configuration is
// replaced by the next one.
func (s *stagesRig) another(seed uint64, replaced ...string) *rig {
	s.t.Helper()
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 0))
	return newRigWith(s.t, strings.NewReplacer(replaced...).Replace(s.text)+"\n# %s\n", func(o *Options) {
		o.Rand = func() uint64 {
			mu.Lock()
			defer mu.Unlock()
			return rng.Uint64()
		}
	})
}

// lastOf returns the record of the last request of a gateway, with its prefill stage.
func lastOf(t *testing.T, r *rig) (*decisions.Decision, *decisions.Prefill) {
	t.Helper()
	synctest.Wait()
	d := r.recorded().Last(1)[0]
	if len(d.Attempts) == 0 || d.Attempts[0].Handover == nil || len(d.Attempts[0].Handover.Prefills) == 0 {
		t.Fatalf("no worker computed a prompt for another one: %+v", d)
	}
	return d, &d.Attempts[0].Handover.Prefills[0]
}

// TestGatewaysShareBothStages: two gateways on one Redis know each other's load on prefill and decode workers, and
// which of them have the prompt of a conversation cached.
func TestGatewaysShareBothStages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		redis := memredis.Start(t, networkOf(t).Network)
		s := newStagesRig(t, "nixl", fmt.Sprintf(`store: { sql: "", redis: %q }`, redis.URL), nil)
		a, b := s.rig, s.another(1)
		a.runControl()
		b.runControl()
		time.Sleep(5 * time.Second)

		first, answered := oneRequest(0, 30_000, true), make(chan httpAnswer, 1)
		go func() { answered <- a.post(first.path, first.body) }()
		time.Sleep(2 * time.Second) // the prefill takes 3.7 s
		other := oneRequest(4, 3000, true)
		wantAnswer(t, other, b.post(other.path, other.body))
		loads := map[string]int{}
		for _, v := range b.control.Pools.Gauges() {
			loads[v.Worker] = v.OthersInflight
		}
		wantAnswer(t, first, <-answered)
		mine, ours := lastOf(t, a)
		theirs, beside := lastOf(t, b)
		if loads[mine.Worker] != 1 || loads[ours.Worker] != 1 || len(loads) != 4 {
			t.Errorf("with a request on %s and %s, the other gateway knows %v", ours.Worker, mine.Worker, loads)
		}
		if theirs.Worker == mine.Worker || beside.Worker == ours.Worker {
			t.Errorf("beside %s and %s, the other gateway selected %s and %s", ours.Worker, mine.Worker, beside.Worker,
				theirs.Worker)
		}

		time.Sleep(5 * time.Second)
		next := strings.Replace(first.body, `}],`, `},{"role":"user","content":"And then?"}],`, 1)
		for range 2 {
			q := request{first.path, next}
			wantAnswer(t, q, b.post(q.path, q.body))
			if d, p := lastOf(t, b); d.Worker != mine.Worker || p.Worker != ours.Worker || p.Usage.Cached < 30_000 {
				t.Errorf("the conversation goes on with %s (%d tokens cached) and %s, not with %s and %s", p.Worker, p.Usage.Cached,
					d.Worker, ours.Worker, mine.Worker)
			}
			next = strings.Replace(next, `}],`, `},{"role":"user","content":"More."}],`, 1)
			time.Sleep(5 * time.Second)
		}
		s.wantClean()
	})
}

// TestTenantsLimitsCountBothStagesOnce, also over two gateways on one Redis.
func TestTenantsLimitsCountBothStagesOnce(t *testing.T) {
	for _, handover := range []string{"nixl", "sglang"} {
		synctest.Test(t, func(t *testing.T) {
			redis := memredis.Start(t, networkOf(t).Network)
			s := newStagesRig(t, handover, fmt.Sprintf(`store: { sql: "", redis: %q }`, redis.URL), nil)
			limits := fmt.Sprintf("auth: { keys: [ { name: acme, sha256: %s, limits: { rpm: 6, burst: 6, concurrent: 2 } } ] }",
				digestHex("acme"))
			gateways := []*rig{s.another(1, "auth: { required: false }", limits),
				s.another(2, "auth: { required: false }", limits)}
			send := func(i int) int {
				q := oneRequest(4*i, 3000, i%2 == 0)
				return gateways[i%2].post(q.path, q.body, "Authorization", "Bearer acme").status
			}
			for round := range 2 {
				var group sync.WaitGroup
				for i := range 2 {
					group.Go(func() {
						if status := send(i + 2*round); status != http.StatusOK {
							t.Errorf("%s: request %d of two at a time: %d", handover, i, status)
						}
					})
				}
				for _, stage := range []string{"prefill", "decode"} {
					time.Sleep(200 * time.Millisecond) // the prefill takes 376 ms, and both stages 525 ms
					if status := send(10); status != http.StatusTooManyRequests {
						t.Errorf("%s: a third request during the %s stage: %d", handover, stage, status)
					}
				}
				group.Wait()
				time.Sleep(time.Second)
			}
			for i := range 3 {
				want := http.StatusOK
				if i == 2 {
					want = http.StatusTooManyRequests
				}
				if status := send(20 + i); status != want {
					t.Errorf("%s: request %d of six a minute: %d, want %d", handover, 5+i, status, want)
				}
			}
			s.wantClean()
		})
	}
}

// TestWorkersLimitsHoldInBothStages: no worker has more requests than max_inflight, queued ones wait for both stages,
// and interactive ones go first.
func TestWorkersLimitsHoldInBothStages(t *testing.T) {
	for _, handover := range []string{"nixl", "p2p_nccl", "sglang"} {
		synctest.Test(t, func(t *testing.T) {
			s := newStagesRig(t, handover, "", nil)
			r := s.another(1, "role: ", "max_inflight: 1, role: ")
			var mu sync.Mutex
			var order []string
			var group sync.WaitGroup
			for i := range 12 {
				class := "batch"
				if i >= 8 {
					class = "interactive"
				}
				q := oneRequest(4*i, 2000, i%2 == 0)
				group.Go(func() {
					wantAnswer(t, q, r.post(q.path, q.body, "X-Request-Priority", class))
					mu.Lock()
					order = append(order, class)
					mu.Unlock()
				})
				time.Sleep(5 * time.Millisecond)
			}
			group.Wait()
			for _, w := range s.stages {
				if w.peak != 1 {
					t.Errorf("%s: %s had %d requests at once", handover, w.name, w.peak)
				}
			}
			batch := 0 // before the last interactive one: those that ran when it came
			for i := len(order) - 1; i >= 0; i-- {
				if order[i] == "batch" && strings.Contains(strings.Join(order[i:], " "), "interactive") {
					batch++
				}
			}
			if batch > 2 {
				t.Errorf("%s: %d batch requests were served before an interactive one: %q", handover, batch, order)
			}
			s.wantClean()
		})
	}
}
