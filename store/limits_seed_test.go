package store

import (
	"fmt"
	"testing"
	"testing/synctest"

	"tierway/tenants"
)

// fleetOf is four gateways on one Redis.
func fleetOf(t *testing.T) []*gateway {
	t.Helper()
	mini := newMini(t)
	var all []*gateway
	for i := range 4 {
		all = append(all, newGateway(t, nil, fmt.Sprint("gw", i), mini))
	}
	return all
}

// alone spends tokens that only this gateway and the ledger know.
func (g *gateway) alone(c *tenants.Caller, tokens int64) {
	charge := &tenants.Charge{Caller: c, At: g.now}
	g.local.CommitRemote(charge)
	g.local.SettleCharge(charge, tenants.Used{Tokens: tokens}, g.now)
}

// knows returns the tokens of today that a gateway counts after one request.
func (g *gateway) knows(c *tenants.Caller) int64 {
	g.take(c, 0, true)
	g.settle(tenants.Used{})
	day, _ := g.local.Spent("x", "", g.now)
	return day.Tokens
}

// seeded seeds every gateway from the ledger.
func seeded(all []*gateway, tokens int64) {
	for _, g := range all {
		g.local.Seed("x", "", g.now, tenants.Spent{Tokens: tokens}, tenants.Spent{Tokens: tokens})
	}
}

func TestSpendingDuringAnOutageCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := fleetOf(t)
		c := callerWith(tenants.Limits{DayTokens: 60_000}, tenants.Limits{})
		for _, g := range all {
			g.take(c, 0, false)
			g.settle(tenants.Used{Tokens: 100})
		}
		for _, g := range all {
			g.alone(c, 10_000)
		}
		seeded(all, 40_400) // the ledger has all of it before Redis has any
		for range 2 {
			for _, g := range all {
				if got := g.knows(c); got > 40_400 {
					t.Errorf("a gateway counts %d of 40,400", got)
				}
			}
		}
		if got := all[0].knows(c); got != 40_400 {
			t.Errorf("in the end a gateway counts %d of 40,400", got)
		}
	})
}

func TestBudgetThatIsSetLaterStartsFromTheLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := fleetOf(t)
		before := callerWith(tenants.Limits{RPM: 1000}, tenants.Limits{})
		for _, g := range all {
			g.take(before, 0, false)
			g.settle(tenants.Used{Tokens: 10_000})
		}
		seeded(all, 40_000)
		after := callerWith(tenants.Limits{RPM: 1000, DayTokens: 60_000}, tenants.Limits{})
		for _, g := range all {
			if got := g.knows(after); got != 40_000 {
				t.Errorf("a gateway counts %d of 40,000", got)
			}
		}
	})
}

func TestLostSettlementIsCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := fleetOf(t)
		c := callerWith(tenants.Limits{DayTokens: 1000}, tenants.Limits{})
		for _, g := range all {
			g.take(c, 0, false)
			g.settle(tenants.Used{Tokens: 1})
		}
		all[0].alone(c, 500) // not sent to Redis
		seeded(all, 504)
		for range 2 {
			for _, g := range all {
				if got := g.knows(c); got > 504 {
					t.Errorf("a gateway counts %d of 504", got)
				}
			}
		}
	})
}

// RS-05: if Redis has lost the rates, they continue from what the gateway itself has admitted, not
// with a full burst.
func TestLostRatesContinueFromTheGatewaysOwnCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := newMini(t)
		g := newGateway(t, nil, "a", mini)
		c := callerWith(tenants.Limits{RPM: 60, Burst: 10, TPM: 1000}, tenants.Limits{RPS: 50})
		for range 9 {
			if v := g.take(c, 100, false); v.Refused != "" {
				t.Fatalf("%+v", v)
			}
		}
		mini.FlushAll()
		if v := g.take(c, 100, false); v.Refused != "" || v.Requests.Remaining != 0 || v.Tokens.Remaining != 0 {
			t.Errorf("after the loss: %+v", v)
		}
		if v := g.take(c, 100, false); v.Refused == "" {
			t.Error("a full burst was there again")
		}
	})
}
