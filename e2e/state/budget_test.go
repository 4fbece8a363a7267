package state

import (
	"context"
	"encoding/json"
	"errors"
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

// withinADay runs a test of a day's budget on a rig of its own, and once more if midnight UTC has passed meanwhile,
// because budgets start again then. A test must fail only through its result.
func withinADay(t *testing.T, test func() error) {
	t.Helper()
	day := func() string { return time.Now().UTC().Format(time.DateOnly) }
	for {
		began := day()
		err := test()
		if day() != began {
			t.Log("midnight has passed: again")
			continue
		}
		if err != nil {
			t.Error(err)
		}
		return
	}
}

// totalTokens returns the total_tokens of an answer.
func totalTokens(t *testing.T, got rig.Reply) int64 {
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

// spend sends requests from several clients until they have used a number of tokens together or
// the budget is exhausted. It returns the tokens used, the tokens of the largest request, and
// whether the budget was exhausted.
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
					spent, largest = spent+totalTokens(r.T, got), max(largest, totalTokens(r.T, got))
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

// checkBudgetExhausted returns an error unless a request gets insufficient_quota and x-should-retry: false.
func (r *stateRig) checkBudgetExhausted(p *gateway.Process, when string) error {
	r.T.Helper()
	got := r.ask(p.BaseURL)
	if got.Status != http.StatusTooManyRequests || !contains(got.Body, "insufficient_quota") ||
		got.Header.Get("X-Should-Retry") != "false" {
		return errorf("%s, a request beyond the budget gets %d, x-should-retry %q: %s", when, got.Status,
			got.Header.Get("X-Should-Retry"), got.Body)
	}
	return nil
}

// TestSmokeABudgetStaysSpentAfterACrash: a gateway that was killed knows from the ledger that the day's tokens are
// spent.
func TestSmokeABudgetStaysSpentAfterACrash(t *testing.T) {
	t.Parallel()
	const budget, clients = 1_000, 4
	withinADay(t, func() error {
		r := newRig(t, 1, engines.Config{})
		sql := backends.Database(t)
		p := r.serve(rig.Settings{"store": stores(sql, ""), "auth": auth("app", fmt.Sprintf("day_tokens: %d", budget))})
		spent, _, told := r.spend(clients, 2*budget, p)
		if !told || spent < budget {
			return errorf("%d tokens were spent of %d", spent, budget)
		}
		r.waitUntilIdleAndWritten(p)
		p.Kill()
		p = r.addGateway(p.StartAgain())
		p.WaitUntilReady()
		return r.checkBudgetExhausted(p, "after a crash")
	})
}

// budgetCase is a way to keep budgets.
type budgetCase struct {
	name     string
	sql      func() string
	redis    bool
	gateways int
}

// TestABudgetStaysSpent uses a day's tokens through gateways that are stopped, killed and lose
// their Redis in between. None of them makes the gateways forget what was spent before: that is a sixth of the
// budget each time. And the budget stays exhausted.
func TestABudgetStaysSpent(t *testing.T) {
	t.Parallel()
	for _, c := range []budgetCase{
		{"PostgreSQL and Redis", func() string { return backends.Database(t) }, true, 4},
		{"PostgreSQL alone", func() string { return backends.Database(t) }, false, 1},
		{"SQLite alone", func() string { return "sqlite://" + t.TempDir() + "/tierway.db" }, false, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			withinADay(t, func() error { return spendThroughRestarts(t, c) })
		})
	}
}

// spendThroughRestarts is TestABudgetStaysSpent for one way to keep budgets.
func spendThroughRestarts(t *testing.T, c budgetCase) error {
	t.Helper()
	const budget, part, clients = 18_000, 18_000 / 6, 16
	r := newRig(t, 2, engines.Config{PerToken: 5 * time.Millisecond})
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
			gs[i] = r.addGateway(gs[i].StartAgain())
			gs[i].WaitUntilReady()
		}
	}
	events := []struct {
		name string
		do   func()
	}{
		{"a stop", again},
		{"a crash", func() {
			for _, p := range gs {
				r.waitUntilIdleAndWritten(p)
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
					waitForMetric(t, p, "tierway_redis_up", 1, rig.Patience)
				}
			}
		}},
	}
	var problems []error
	var spent, largest int64
	for _, e := range events {
		tokens, big, told := r.spend(clients, part, gs...)
		spent, largest = spent+tokens, max(largest, big)
		if told {
			problems = append(problems, errorf("the budget was spent after %d of %d tokens", spent, budget))
		}
		e.do()
	}
	before := r.decidedAlone()
	tokens, big, told := r.spend(clients, 2*budget, gs...)
	alone := int64(r.decidedAlone() - before)
	spent, largest = spent+tokens, max(largest, big)
	if !told {
		problems = append(problems, errorf("%d tokens were spent of a budget of %d", spent, budget))
	}
	// A budget counts settled requests. A gateway counts its own at once; the others count
	// them shortly afterwards, through Redis. Meanwhile the clients send more, but far fewer
	// than were spent before an event. A gateway that decides without Redis counts its own
	// requests and its last reading.
	if over := spent - budget; over >= part+alone*largest {
		problems = append(problems, errorf("%d tokens were spent of %d; %d were spent before each event, and %d requests "+
			"of at most %d tokens were decided without Redis", spent, budget, part, alone, largest))
	}
	if least := budget - clients*200; spent < int64(least) {
		problems = append(problems, errorf("only %d tokens were spent of %d", spent, budget))
	}
	t.Logf("%d tokens were spent of %d", spent, budget)
	for _, e := range events {
		e.do()
		for _, p := range gs {
			problems = append(problems, r.checkBudgetExhausted(p, "after "+e.name))
		}
	}
	return errors.Join(problems...)
}
