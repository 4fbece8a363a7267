package store

import (
	"time"

	"github.com/google/go-cmp/cmp"

	"tierway/tenants"
)

// step is one step of a case: a request, the end of the oldest one, or time.
type step struct {
	limits  *tenants.Limits // of the tenant, from this step on
	key     *tenants.Limits // of the key, from this step on
	tokens  int64
	times   int // number of requests, all admitted but the last; 0: none
	ignore  bool
	settle  *tenants.Used
	advance time.Duration
	want    tenants.Admission // of the last request
}

func used(tokens int64, money tenants.Money) *tenants.Used {
	return &tenants.Used{Tokens: tokens, Money: money}
}

// cases define the meaning of limits in every store.
func cases() map[string][]step {
	meter := func(limit, remaining int64, reset time.Duration) tenants.Meter {
		return tenants.Meter{Set: true, Limit: limit, Remaining: remaining, Reset: reset}
	}
	type V = tenants.Admission
	type L = tenants.Limits
	return map[string][]step{
		"requests a minute": {
			{limits: &L{RPM: 6, Burst: 3}, times: 1, want: V{Requests: meter(6, 2, 10*time.Second)}},
			{times: 2, want: V{Requests: meter(6, 0, 30*time.Second)}},
			{times: 1, want: V{Refused: tenants.LimitRPM, Scope: "tenant", Wait: 10 * time.Second,
				Requests: meter(6, 0, 30*time.Second)}},
			{settle: &tenants.Used{Refund: true}},
			{times: 1, want: V{Requests: meter(6, 0, 30*time.Second)}},
		},
		"requests of tenant and key": {
			{limits: &L{RPM: 6, Burst: 5}, key: &L{RPM: 1, Burst: 2}, times: 2, want: V{Requests: meter(1, 0, 2*time.Minute)}},
			{times: 1, want: V{Refused: tenants.LimitRPM, Scope: "key", Wait: time.Minute,
				Requests: meter(1, 0, 2*time.Minute)}},
			{key: &L{}, times: 1, want: V{Requests: meter(6, 2, 30*time.Second)}}, // the refused request cost the tenant nothing
		},
		"tokens a minute": { // RL-07
			{limits: &L{TPM: 60, TokenBurst: 1000}, tokens: 600, times: 1, want: V{Tokens: meter(60, 400, 600*time.Second)}},
			{tokens: 500, times: 1, want: V{Refused: tenants.LimitTPM, Scope: "tenant", Wait: 100 * time.Second,
				Tokens: meter(60, 400, 600*time.Second)}},
			{settle: used(100, 0)},
			{tokens: 500, times: 1, want: V{Tokens: meter(60, 400, 600*time.Second)}},
			{settle: used(2000, 0)},
			{tokens: 0, times: 1, want: V{Refused: tenants.LimitTPM, Scope: "tenant", Wait: 1100 * time.Second,
				Tokens: meter(60, 0, 2100*time.Second)}},
			{tokens: 1001, times: 1,
				want: V{Refused: tenants.LimitTokenBurst, Scope: "tenant", Tokens: meter(60, 0, 2100*time.Second)}},
		},
		"under way": { // RL-05
			{limits: &L{Concurrent: 2}, key: &L{Concurrent: 3}, times: 2},
			{times: 1, want: V{Refused: tenants.LimitConcurrent, Scope: "tenant", Wait: time.Second}},
			{settle: used(1, 1)}, {times: 1},
			{times: 1, want: V{Refused: tenants.LimitConcurrent, Scope: "tenant", Wait: time.Second}},
			{settle: used(1, 1)}, {settle: used(1, 1)}, {times: 2},
			{limits: &L{}, times: 1},
			{times: 1, want: V{Refused: tenants.LimitConcurrent, Scope: "key", Wait: time.Second}},
		},
		"budgets": {
			{limits: &L{DayTokens: 100, MonthTokens: 150, DayMoney: 5 * tenants.Unit}, key: &L{MonthMoney: 6 * tenants.Unit},
				times: 3},
			{settle: used(99, 0)}, {times: 1}, {settle: used(1, 0)},
			{times: 1, want: V{Refused: tenants.LimitDayTokens, Scope: "tenant", Wait: 12 * time.Hour}},
			{ignore: true, times: 2}, {settle: used(60, 5*tenants.Unit)},
			{limits: &L{MonthTokens: 150, DayMoney: 5 * tenants.Unit}, times: 1,
				want: V{Refused: tenants.LimitMonthTokens, Scope: "tenant", Wait: 12 * time.Hour}},
			{limits: &L{DayMoney: 5 * tenants.Unit}, times: 1,
				want: V{Refused: tenants.LimitDayMoney, Scope: "tenant", Wait: 12 * time.Hour}},
			{limits: &L{MonthMoney: 5*tenants.Unit + 1}, key: &L{MonthMoney: 5 * tenants.Unit}, times: 1,
				want: V{Refused: tenants.LimitMonthMoney, Scope: "key", Wait: 12 * time.Hour}},
		},
		"budgets beyond a double's integers": {
			{limits: &L{MonthMoney: 1<<59 + 3}, times: 4},
			{settle: used(1<<59, 1<<59)}, {settle: used(0, 1)}, {times: 1}, {settle: used(0, 1)}, {times: 1},
			{settle: used(0, 1)},
			{times: 1, want: V{Refused: tenants.LimitMonthMoney, Scope: "tenant", Wait: 12 * time.Hour}},
		},
		"a limit that changes is carried over": { // RL-13
			{limits: &L{RPM: 6, Burst: 100}, times: 50, want: V{Requests: meter(6, 50, 500*time.Second)}},
			{limits: &L{RPM: 6, Burst: 10}, times: 1,
				want: V{Refused: tenants.LimitRPM, Scope: "tenant", Wait: 410 * time.Second,
					Requests: meter(6, 0, 500*time.Second)}},
			{limits: &L{RPM: 6, Burst: 51}, times: 1, want: V{Requests: meter(6, 0, 510*time.Second)}},
		},
		"what is told first": {
			{limits: &L{RPM: 1, RPS: 1, TPM: 1, TokenBurst: 5, Concurrent: 1, DayTokens: 1}, tokens: 2, times: 1,
				want: V{Requests: meter(1, 0, time.Minute), Tokens: meter(1, 3, 2*time.Minute)}},
			{tokens: 5, times: 1, want: V{Refused: tenants.LimitTPM, Scope: "tenant", Wait: 2 * time.Minute,
				Requests: meter(1, 0, time.Minute), Tokens: meter(1, 3, 2*time.Minute)}},
			{tokens: 6, times: 1, want: V{Refused: tenants.LimitTokenBurst, Scope: "tenant", Requests: meter(1, 0, time.Minute),
				Tokens: meter(1, 3, 2*time.Minute)}},
			{settle: used(1, 0)},
			{tokens: 6, times: 1, want: V{Refused: tenants.LimitDayTokens, Scope: "tenant", Wait: 12 * time.Hour,
				Requests: meter(1, 0, time.Minute), Tokens: meter(1, 4, time.Minute)}},
		},
		"rates run with time": {
			{limits: &L{RPS: 4, TPM: 6000}, tokens: 1000, times: 4,
				want: V{Requests: meter(4, 0, time.Second), Tokens: meter(6000, 2000, 40*time.Second)}},
			{times: 1, want: V{Refused: tenants.LimitRPS, Scope: "tenant", Wait: 250 * time.Millisecond,
				Requests: meter(4, 0, time.Second), Tokens: meter(6000, 2000, 40*time.Second)}},
			{advance: 249 * time.Millisecond},
			{times: 1, want: V{Refused: tenants.LimitRPS, Scope: "tenant", Wait: time.Millisecond,
				Requests: meter(4, 0, 751*time.Millisecond), Tokens: meter(6000, 2024, 39751*time.Millisecond)}},
			{advance: time.Millisecond},
			{times: 1, want: V{Requests: meter(4, 0, time.Second), Tokens: meter(6000, 2025, 39750*time.Millisecond)}},
			{advance: time.Minute}, {settle: used(0, 0)},
			{tokens: 5, times: 1,
				want: V{Requests: meter(4, 3, 250*time.Millisecond), Tokens: meter(6000, 5995, 50*time.Millisecond)}},
			// RL-02
			{advance: -10 * time.Second},
			{times: 1, want: V{Requests: meter(4, 2, 500*time.Millisecond), Tokens: meter(6000, 5995, 50*time.Millisecond)}},
		},
		"windows end": {
			{limits: &L{DayTokens: 10, MonthMoney: 10}, times: 3}, {settle: used(10, 10)},
			{times: 1, want: V{Refused: tenants.LimitDayTokens, Scope: "tenant", Wait: 12 * time.Hour}},
			{advance: 12*time.Hour - time.Second},
			{times: 1, want: V{Refused: tenants.LimitDayTokens, Scope: "tenant", Wait: time.Second}},
			// usage of yesterday's requests is booked to yesterday
			{advance: time.Second}, {times: 1}, {settle: used(50, 50)}, {settle: used(50, 50)}, {times: 1},
			{settle: used(10, 10)}, {times: 1, want: V{Refused: tenants.LimitDayTokens, Scope: "tenant", Wait: 24 * time.Hour}},
			{advance: 24 * time.Hour},
			{times: 1, want: V{Refused: tenants.LimitMonthMoney, Scope: "tenant", Wait: 30 * 24 * time.Hour}},
		},
	}
}

// run runs a case.
func (g *gateway) run(steps []step) {
	g.t.Helper()
	var tenant, key tenants.Limits
	for i, s := range steps {
		if s.limits != nil {
			tenant = *s.limits
		}
		if s.key != nil {
			key = *s.key
		}
		g.advance(s.advance)
		if s.settle != nil {
			g.settle(*s.settle)
		}
		for n := range s.times {
			got := g.take(callerWith(tenant, key), s.tokens, s.ignore)
			if n < s.times-1 {
				if got.Refused != "" {
					g.t.Fatalf("step %d: request %d is refused: %+v", i, n, got)
				}
				continue
			}
			if d := cmp.Diff(s.want, got); d != "" {
				g.t.Fatalf("step %d:\n%s", i, d)
			}
		}
	}
}
