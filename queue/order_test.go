package queue

import (
	"fmt"
	"math"
	"testing"
	"time"

	"tierway/routing"
)

// TestTenantsShareTokensByWeight: each tenant always has waiting requests; one sends ten times
// as many, each ten times as large.
func TestTenantsShareTokensByWeight(t *testing.T) {
	for _, weights := range [][2]int{{1, 1}, {1, 3}, {5, 2}} {
		r := newRig(t, usual(), 2, 4)
		r.fill(8)
		add := func(tenant int, many int) {
			for range many {
				tk := r.ticket(1, fmt.Sprint(tenant), int64(100+900*tenant+r.rng.below(50)))
				tk.Weight = weights[tenant]
				r.mustWait(tk)
			}
		}
		add(0, 20)
		add(1, 200)
		got := [2]float64{}
		for range 20_000 {
			tk := r.next()
			tenant := int(tk.Tenant[0] - '0')
			got[tenant] += float64(tk.Tokens)
			add(tenant, 1)
		}
		want := float64(weights[0]) / float64(weights[0]+weights[1])
		if share := got[0] / (got[0] + got[1]); math.Abs(share-want) > 0.01 {
			t.Errorf("weights %v: tenant 0 got %.3f of the tokens, want %.3f", weights, share, want)
		}
		r.check()
	}
}

// TestSplittingRequestsGainsNoTokens: a tenant with ten times as many requests, each a tenth as
// large, gets the same tokens as the other one.
func TestSplittingRequestsGainsNoTokens(t *testing.T) {
	r := newRig(t, usual(), 1, 4)
	r.fill(4)
	sizes := map[string]int64{"whole": 10_000, "split": 1000}
	for tenant, size := range sizes {
		for range 50 {
			r.mustWait(r.ticket(0, tenant, size))
		}
	}
	got := map[string]float64{}
	for range 11_000 {
		tk := r.next()
		got[tk.Tenant] += float64(tk.Tokens)
		r.mustWait(r.ticket(0, tk.Tenant, sizes[tk.Tenant]))
	}
	if ratio := got["split"] / got["whole"]; ratio > 1.01 || ratio < 0.99 {
		t.Errorf("by splitting a tenant got %.3f times what the other one got", ratio)
	}
}

// TestRealTokensCorrectTheShares: a tenant gets no more tokens if its answers are four times as
// long as expected or estimated.
func TestRealTokensCorrectTheShares(t *testing.T) {
	r := newRig(t, usual(), 1, 4)
	r.fill(4)
	for _, tenant := range []string{"honest", "modest"} {
		for range 20 {
			r.mustWait(r.ticket(0, tenant, 1000))
		}
	}
	got := map[string]float64{}
	for range 10_000 {
		tk := r.next()
		used := int64(1000)
		if tk.Tenant == "modest" {
			used = 4000
		}
		got[tk.Tenant] += float64(used)
		r.queue.SettleUsage(tk, used)
		r.mustWait(r.ticket(0, tk.Tenant, 1000))
	}
	if ratio := got["modest"] / got["honest"]; ratio > 1.01 || ratio < 0.99 {
		t.Errorf("by low estimates a tenant got %.3f times what the other one got", ratio)
	}
}

func TestIdleTenantAccumulatesNoCredit(t *testing.T) {
	r := newRig(t, usual(), 1, 1)
	r.fill(1)
	r.mustWait(r.ticket(0, "late", 10))
	for range 30 {
		r.mustWait(r.ticket(0, "busy", 1000))
	}
	for range 10 {
		r.next()
	}
	for range 30 {
		r.mustWait(r.ticket(0, "late", 1000))
	}
	turns := map[string]int{}
	for range 20 {
		turns[r.next().Tenant]++
	}
	if turns["late"] > 11 || turns["late"] < 9 {
		t.Errorf("the tenant that was idle had %d of 20 dispatches, want about half", turns["late"])
	}
}

// TestAgedRequestsGetTheirShare: QU-04. Beside interactive requests without end, the waiting
// requests of the lower classes together get aged_share of the tokens.
func TestAgedRequestsGetTheirShare(t *testing.T) {
	for _, share := range []float64{0, 0.05, 0.2, 0.4} {
		for _, lower := range [][]int{{1, 2}, {2}, {1}} {
			c := usual()
			c.AgedShare, c.Age = share, [Classes]time.Duration{1: 10 * time.Second, 2: 30 * time.Second}
			r := newRig(t, c, 1, 1)
			r.fill(1)
			size := [Classes]int64{300, 2000, 5000}
			r.mustWait(r.ticket(0, "a", size[0]))
			r.mustWait(r.ticket(0, "a", size[0]))
			for _, class := range lower {
				for range 50 {
					r.mustWait(r.ticket(class, "b", size[class]))
				}
			}
			r.pass(time.Minute)
			got, all := 0.0, 0.0
			for range 8000 {
				r.now = r.now.Add(10 * time.Second) // so that the lower classes are always aged
				tk := r.next()
				all += float64(tk.Tokens)
				if tk.Class > 0 {
					got += float64(tk.Tokens)
				}
				r.mustWait(r.ticket(tk.Class, tk.Tenant, size[tk.Class]))
			}
			if math.Abs(got/all-share) > 0.01 {
				t.Errorf("share %v, classes %v: they got %.3f of the tokens", share, lower, got/all)
			}
			r.check()
		}
	}
}

func TestRequestBelowItsAgeWaitsForTheClassAbove(t *testing.T) {
	c := usual()
	c.Age = [Classes]time.Duration{1: 10 * time.Second, 2: 30 * time.Second}
	r := newRig(t, c, 1, 1)
	r.fill(1)
	r.mustWait(r.ticket(2, "b", 10))
	for range 50 {
		r.mustWait(r.ticket(0, "a", 10))
	}
	for i := range 29 {
		r.now = r.now.Add(time.Second)
		if tk := r.next(); tk.Class != 0 {
			t.Fatalf("a batch request went after %d s", i)
		}
	}
	r.now = r.now.Add(time.Second)
	for range 10 {
		if tk := r.next(); tk.Class == 2 {
			return
		}
	}
	t.Error("an aged batch request did not go among ten")
}

// TestReturningTenantIsNotBehindUnusedReservations: a busy tenant's requests are charged for
// far more than they use. A tenant that was idle is still dispatched among its next requests.
func TestReturningTenantIsNotBehindUnusedReservations(t *testing.T) {
	r := newRig(t, usual(), 1, 8)
	r.fill(8)
	for range 50 {
		r.mustWait(r.ticket(0, "busy", 5000))
	}
	for range 200 {
		r.queue.SettleUsage(r.next(), 20)
		r.mustWait(r.ticket(0, "busy", 20))
	}
	quiet := r.mustWait(r.ticket(0, "quiet", 20))
	for range 3 {
		if r.next() == quiet {
			return
		}
	}
	t.Error("three of the busy tenant's requests went before it")
}

// TestTicketIsChargedItsExpectedTokensAtDispatch: not those expected at its arrival.
func TestTicketIsChargedItsExpectedTokensAtDispatch(t *testing.T) {
	r := newRig(t, usual(), 1, 2)
	filled := r.fill(2)
	before := r.pool.Learned().OutputTokens(0)
	free, bounded := r.ticket(0, "a", 100), r.ticket(0, "a", 100)
	for _, tk := range []*Ticket{free, bounded} {
		tk.Expected, tk.Request.OutputTokens = true, before
		tk.Tokens += before
		r.mustWait(tk)
	}
	bounded.MaxTokens = 5
	for _, tk := range filled {
		lease := r.held[tk]
		delete(r.held, tk)
		lease.Release(routing.Result{At: r.now, OutputTokens: 20})
		after := r.pool.Learned().OutputTokens(0)
		granted, want := r.claim()[0], after
		if granted == bounded {
			want = 5
		}
		if after >= before || granted.Request.OutputTokens != want || granted.Tokens != 100+want ||
			granted.charged != 100+want {
			t.Errorf("%d were expected before and %d now; it went with %d, and counts %d", before, after,
				granted.Request.OutputTokens, granted.charged)
		}
		r.check()
	}
}

// TestNewTenantDoesNotPayForUnsettledCharges: the busy tenant's requests in flight are charged
// for more than they use, and settle after the quiet tenant has entered.
func TestNewTenantDoesNotPayForUnsettledCharges(t *testing.T) {
	r := newRig(t, usual(), 1, 8)
	r.fill(8)
	for range 100 {
		r.mustWait(r.ticket(0, "busy", 5000))
	}
	var under []*Ticket
	for range 8 {
		under = append(under, r.next())
	}
	quiet := r.mustWait(r.ticket(0, "quiet", 5000))
	for _, tk := range under {
		r.queue.SettleUsage(tk, 20)
	}
	for range 3 {
		tk := r.next()
		if tk == quiet {
			return
		}
		r.queue.SettleUsage(tk, 20)
	}
	t.Error("three of the busy tenant's requests went before it")
}
