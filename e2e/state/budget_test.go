package state

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"tierway/e2e/backends"
	"tierway/e2e/gateway"
	"tierway/e2e/rig"
	"tierway/engines"
)

// noMidnight waits until no UTC day ends within the next minutes: budgets begin
// anew there.
func noMidnight(t *testing.T) {
	t.Helper()
	for time.Until(time.Now().UTC().Truncate(24*time.Hour).Add(24*time.Hour)) < 3*time.Minute {
		pause(time.Second)
	}
}

// total is the usage of an answer.
func total(t *testing.T, got rig.Reply) int64 {
	t.Helper()
	var body struct {
		Usage struct {
			Total int64 `json:"total_tokens"`
		} `json:"usage"`
	}
	if err := json.Unmarshal([]byte(got.Body), &body); err != nil || body.Usage.Total == 0 {
		t.Errorf("an answer without usage (%v): %s", err, got.Body)
	}
	return body.Usage.Total
}

// spend has clients ask gateways until they have spent so many tokens together or
// are told that the budget is spent, and returns what they have spent, how much
// their largest request was, and whether they were told.
func (r *stateRig) spend(clients int, tokens int64, gateways ...*gateway.Process) (spent, largest int64, told bool) {
	r.T.Helper()
	var mu sync.Mutex
	var work sync.WaitGroup
	for i := range clients {
		work.Go(func() {
			for n := i; ; n++ {
				mu.Lock()
				enough := spent >= tokens || told
				mu.Unlock()
				if enough {
					return
				}
				ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
				got, err := r.post(ctx, gateways[n%len(gateways)].BaseURL, chatPath, rig.TenantKey, chatBody)
				cancel()
				mu.Lock()
				switch {
				case err != nil:
					r.T.Error(err)
					told = true
				case got.Status == http.StatusOK:
					spent, largest = spent+total(r.T, got), max(largest, total(r.T, got))
				case got.Status == http.StatusTooManyRequests && contains(got.Body, "insufficient_quota"):
					told = true
				default:
					r.T.Errorf("an answer is %d: %s", got.Status, got.Body)
					told = true
				}
				mu.Unlock()
			}
		})
	}
	work.Wait()
	return spent, largest, told
}

// refuses checks that a spent budget is told as one, without an invitation to try
// again.
func (r *stateRig) refuses(p *gateway.Process, when string) {
	r.T.Helper()
	got := r.ask(p.BaseURL)
	if got.Status != http.StatusTooManyRequests || !contains(got.Body, "insufficient_quota") ||
		got.Header.Get("X-Should-Retry") != "false" {
		r.T.Errorf("%s a spent budget is told %d, x-should-retry %q: %s", when, got.Status, got.Header.Get("X-Should-Retry"),
			got.Body)
	}
}

// TestABudgetStaysSpent spends a day's tokens through gateways that are
// stopped, killed and lose their Redis in between. Together no more is spent than
// the budget and what was under way when it ended, and it stays spent.
func TestABudgetStaysSpent(t *testing.T) {
	t.Parallel()
	const budget, clients = 9000, 16
	for _, c := range []struct {
		name     string
		sql      func() string
		redis    bool
		gateways int
	}{
		{"PostgreSQL and Redis", func() string { return backends.Database(t) }, true, 4},
		{"PostgreSQL alone", func() string { return backends.Database(t) }, false, 1},
		{"SQLite alone", func() string { return "sqlite://" + t.TempDir() + "/tierway.db" }, false, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			noMidnight(t)
			r := newRig(t, 2, engines.Config{})
			url, redis := "", (*backends.RedisServer)(nil)
			if c.redis {
				redis = backends.Redis(t)
				url = redis.URL
			}
			own := rig.Settings{"store": stores(c.sql(), url), "auth": auth("app", fmt.Sprintf("day_tokens: %d", budget))}
			var gs []*gateway.Process
			for range c.gateways {
				gs = append(gs, r.serve(own))
			}
			again := func() {
				for i := range gs {
					gs[i] = r.took(gs[i].StartAgain())
					gs[i].WaitUntilReady()
				}
			}
			events := []struct {
				name string
				do   func()
			}{
				{"a stop", again},
				{"a crash", func() {
					pause(1500 * time.Millisecond) // the ledger is written every second
					for _, p := range gs {
						p.Kill()
					}
					again()
				}},
				{"FLUSHALL", func() {
					if redis != nil {
						redis.Do("FLUSHALL")
					}
				}},
				{"a new Redis", func() {
					if redis != nil {
						redis.Restart()
						for _, p := range gs {
							metric(t, p, "tierway_redis_up", 1, rig.Patience)
						}
					}
				}},
			}
			var spent, largest int64
			for _, e := range events {
				part, big, told := r.spend(clients, budget/6, gs...)
				spent, largest = spent+part, max(largest, big)
				if told {
					t.Errorf("the budget was spent after %d of %d tokens", spent, budget)
				}
				e.do()
			}
			before := r.alone()
			part, big, told := r.spend(clients, 2*budget, gs...)
			alone := int64(r.alone() - before)
			spent, largest = spent+part, max(largest, big)
			if !told {
				t.Errorf("%d tokens were spent of a budget of %d", spent, budget)
			}
			// A budget counts what is settled. One gateway counts its own at once; the
			// others learn of it a moment later, through Redis or by the next request that
			// it decides. Each client has one request under way, and with several gateways
			// one more that is not yet known to all. A gateway that decides without Redis
			// knows what it has settled itself and has last read.
			unknown := clients * largest
			if c.gateways > 1 {
				unknown += (clients + alone) * largest
			}
			if spent > budget+unknown {
				t.Errorf("%d tokens were spent of %d; under way or not yet known were %d at most; %d requests were decided "+
					"without Redis", spent, budget, unknown, alone)
			}
			if least := budget - clients*200; spent < int64(least) {
				t.Errorf("only %d tokens were spent of %d", spent, budget)
			}
			t.Logf("%d tokens were spent of %d: an overshoot of %d, where %d were under way or not yet known at most", spent,
				budget, spent-budget, unknown)
			for _, e := range events {
				e.do()
				for _, p := range gs {
					r.refuses(p, "after "+e.name)
				}
			}
		})
	}
}
