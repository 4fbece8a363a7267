package tenants

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// caller returns a caller scope tenant and key have those limits.
func caller(tenant, key Limits) *Caller {
	return NewCaller(Tenant{Name: "x", Limits: tenant}, Key{ID: "k", Limits: key})
}

// house is a limiter with a manual clock and the requests in flight.
type house struct {
	*Limiter
	now  time.Time
	open []*Charge
}

func newHouse() *house { return &house{Limiter: NewLimiter(), now: noon()} }

func (h *house) take(c *Caller, tokens int64, share int) Admission {
	charge := &Charge{Caller: c, At: h.now, Tokens: tokens}
	v := h.TakeCharge(charge, share)
	if v.Refused == "" {
		h.open = append(h.open, charge)
	}
	return v
}

// admitted returns how many of n requests are admitted.
func (h *house) admitted(c *Caller, n int, tokens int64, share int) (admitted int) {
	for range n {
		if h.take(c, tokens, share).Refused == "" {
			admitted++
		}
	}
	return admitted
}

// settle ends the oldest request in flight.
func (h *house) settle(u Used) {
	h.SettleCharge(h.open[0], u, h.now)
	h.open = h.open[1:]
}

func TestEachLimitRefusesUnderItsName(t *testing.T) {
	for name, c := range map[string]struct {
		limits Limits
		tokens int64
		allows int
		want   Admission
	}{
		"a minute": {Limits{RPM: 60}, 0, 10,
			Admission{Refused: LimitRPM, Wait: time.Second, Requests: Meter{true, 60, 0, 10 * time.Second}}},
		"a second": {Limits{RPS: 4}, 0, 4,
			Admission{Refused: LimitRPS, Wait: 250 * time.Millisecond, Requests: Meter{true, 4, 0, time.Second}}},
		"the longer": {Limits{RPM: 60, RPS: 10, Burst: 2}, 0, 2,
			Admission{Refused: LimitRPM, Wait: time.Second, Requests: Meter{true, 60, 0, 2 * time.Second}}},
		"tokens": {Limits{TPM: 600}, 250, 2,
			Admission{Refused: LimitTPM, Wait: 15 * time.Second, Tokens: Meter{true, 600, 100, 50 * time.Second}}},
		"too many": {Limits{TPM: 600, TokenBurst: 100}, 101, 0,
			Admission{Refused: LimitTokenBurst, Tokens: Meter{true, 600, 100, 0}}},
		"under way": {Limits{Concurrent: 3}, 0, 3, Admission{Refused: LimitConcurrent, Wait: time.Second}},
		"rates first": {Limits{Concurrent: 1, RPM: 6}, 0, 1,
			Admission{Refused: LimitRPM, Wait: 10 * time.Second, Requests: Meter{true, 6, 0, 10 * time.Second}}},
		"only the first": {Limits{TPM: 1, RPM: 6}, 2, 0, Admission{Refused: LimitTokenBurst, Requests: Meter{true, 6, 1, 0},
			Tokens: Meter{true, 1, 1, 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			for scope, client := range map[string]*Caller{"tenant": caller(c.limits, Limits{}),
				"key": caller(Limits{}, c.limits)} {
				h := newHouse()
				if got := h.admitted(client, c.allows, c.tokens, 1); got != c.allows {
					t.Errorf("the %s's limit admits %d of %d", scope, got, c.allows)
				}
				c.want.Scope = scope
				if d := cmp.Diff(c.want, h.take(client, c.tokens, 1)); d != "" {
					t.Errorf("the %s's limit:\n%s", scope, d)
				}
			}
		})
	}
}

func TestBudgetsRefuseUntilTheirWindowEnds(t *testing.T) {
	for name, c := range map[string]struct {
		limits Limits
		want   Limit
		wait   time.Duration
	}{
		"a day's tokens":   {Limits{DayTokens: 10, MonthTokens: 10}, LimitDayTokens, 12 * time.Hour},
		"a month's tokens": {Limits{DayTokens: 11, MonthTokens: 10}, LimitMonthTokens, 12 * time.Hour},
		"a day's money":    {Limits{DayMoney: 5, MonthMoney: 6}, LimitDayMoney, 12 * time.Hour},
		"a month's money":  {Limits{MonthMoney: 5}, LimitMonthMoney, 12 * time.Hour},
	} {
		h := newHouse() // noon of the last of February: both windows end at midnight
		client := caller(c.limits, Limits{})
		if n := h.admitted(client, 3, 0, 1); n != 3 {
			t.Errorf("%s: of three at once %d are admitted", name, n)
		}
		h.settle(Used{Tokens: 10, Money: 5})
		v := h.take(client, 0, 1)
		if v.Refused != c.want || v.Wait != c.wait || v.Scope != "tenant" {
			t.Errorf("%s: %+v", name, v)
		}
		degraded := &Charge{Caller: client, At: h.now, IgnoreBudget: true}
		if v := h.TakeCharge(degraded, 1); v.Refused != "" || h.Inflight("x", "") != 3 {
			t.Errorf("%s: degraded it is %+v, %d under way", name, v, h.Inflight("x", ""))
		}
		h.now = h.now.Add(c.wait)
		if v := h.take(client, 0, 1); v.Refused != "" {
			t.Errorf("%s: in the next window it is %+v", name, v)
		}
		h.settle(Used{Tokens: 10, Money: 5}) // admitted yesterday
		if day, month := h.Spent("x", "", h.now); day != (Spent{}) || month != (Spent{}) {
			t.Errorf("%s: yesterday's request is booked today: %v, %v", name, day, month)
		}
		if day, _ := h.Spent("x", "", noon()); day != (Spent{Tokens: 20, Money: 10}) {
			t.Errorf("%s: yesterday's are %v", name, day)
		}
	}
}

func TestBudgetEndsWithItsMonth(t *testing.T) {
	for at, want := range map[string][2]time.Duration{
		"2026-12-31T23:59:59Z":      {time.Second, time.Second},
		"2026-01-31T00:00:00Z":      {24 * time.Hour, 24 * time.Hour},
		"2024-02-01T00:00:00Z":      {24 * time.Hour, 29 * 24 * time.Hour},
		"2026-03-01T08:00:00+09:00": {time.Hour, time.Hour},
	} {
		when, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t.Fatal(err)
		}
		if day, month := LimitDayMoney.UntilNext(when), LimitMonthTokens.UntilNext(when); day != want[0] || month != want[1] {
			t.Errorf("at %s the day ends in %v, the month in %v", at, day, month)
		}
	}
}

func TestNothingIsBookedUnlessAllLimitsPass(t *testing.T) {
	h := newHouse()
	client := caller(Limits{RPM: 60, TPM: 1000, Concurrent: 5}, Limits{Concurrent: 1})
	h.admitted(client, 1, 100, 1)
	for range 20 {
		if v := h.take(client, 100, 1); v.Refused != LimitConcurrent || v.Scope != "key" || v.Requests.Remaining != 9 ||
			v.Tokens.Remaining != 900 {
			t.Fatalf("%+v", v)
		}
	}
	if h.Inflight("x", "") != 1 || h.Inflight("x", "k") != 1 || h.Inflight("y", "") != 0 {
		t.Error("refused requests are under way")
	}
}

func TestMeterIsThatOfTheSubjectWithLeastRemaining(t *testing.T) {
	h := newHouse()
	client := caller(Limits{RPM: 60, TPM: 1000}, Limits{RPS: 3, TPM: 600})
	v := h.take(client, 100, 1)
	want := Admission{Requests: Meter{true, 3, 2, 333334 * time.Microsecond},
		Tokens: Meter{true, 600, 500, 10 * time.Second}}
	if d := cmp.Diff(want, v); d != "" {
		t.Error(d)
	}
}

// RL-07: unused reservations are returned, usage beyond them counts, and no remaining amount is
// negative.
func TestSettlingCorrectsTheBucketBothWays(t *testing.T) {
	h := newHouse()
	client := caller(Limits{TPM: 6000}, Limits{})
	remaining := func() int64 {
		return h.TakeCharge(&Charge{Caller: client, At: h.now, Tokens: 9999}, 1).Tokens.Remaining
	}
	h.take(client, 1000, 1)
	h.settle(Used{Tokens: 10})
	if got := remaining(); got != 5990 {
		t.Errorf("after 10 of 1000 %d are left", got)
	}
	h.take(client, 1000, 1)
	h.settle(Used{Tokens: 8000})
	if got := remaining(); got != 0 {
		t.Errorf("after 8000 more %d are left", got)
	}
	if v := h.take(client, 0, 1); v.Refused != LimitTPM || v.Wait != 20100*time.Millisecond {
		t.Errorf("it is %+v", v)
	}
	h.now = h.now.Add(time.Hour)
	h.take(client, 3000, 1)
	h.now = h.now.Add(time.Minute)
	h.settle(Used{}) // what it reserved has leaked away: more is not given back
	if got := remaining(); got != 6000 {
		t.Errorf("after a minute %d are left", got)
	}
}

func TestRefundCostsNothing(t *testing.T) {
	h := newHouse()
	client := caller(Limits{RPM: 60, RPS: 5, TPM: 600, Concurrent: 1}, Limits{})
	h.take(client, 500, 1)
	h.settle(Used{Refund: true})
	if v := h.take(client, 600, 1); v.Refused != "" || v.Requests.Remaining != 9 || v.Tokens.Remaining != 0 {
		t.Errorf("after a refund it is %+v", v)
	}
}

// RL-13: a changed limit keeps the usage.
func TestUsageSurvivesAChangedLimit(t *testing.T) {
	h := newHouse()
	wide, narrow := caller(Limits{RPM: 600, TPM: 6000}, Limits{}), caller(Limits{RPM: 60, TPM: 600}, Limits{})
	if n := h.admitted(wide, 200, 10, 1); n != 100 {
		t.Fatalf("%d are admitted", n)
	}
	// 100 requests and 1000 tokens are used; 9 and 590 remain.
	if v := h.take(narrow, 10, 1); v.Refused != LimitRPM || v.Wait != 91*time.Second || v.Requests.Remaining != 0 ||
		v.Tokens.Remaining != 0 {
		t.Errorf("narrowed it is %+v", v)
	}
	if v := h.take(wide, 10, 1); v.Refused != LimitRPM || v.Wait != 100*time.Millisecond {
		t.Errorf("widened again it is %+v", v)
	}
	h.now = h.now.Add(91 * time.Second)
	if n := h.admitted(narrow, 5, 0, 1); n != 1 {
		t.Errorf("after the wait %d are admitted", n)
	}
	for range 101 {
		h.settle(Used{})
	}
}

// RL-02: a clock that steps back admits nothing more, and does not change earlier usage.
func TestClockStepBackAdmitsNothingMore(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		client := caller(Limits{RPM: 60, RPS: 3}, Limits{})
		honest, stepping := newHouse(), newHouse()
		latest := stepping.now
		honest.admitted(client, 1, 0, 1)
		stepping.admitted(client, 1, 0, 1)
		for range rapid.IntRange(1, 60).Draw(rt, "requests") {
			step := time.Duration(rapid.IntRange(-30_000, 5_000).Draw(rt, "ms")) * time.Millisecond
			stepping.now = stepping.now.Add(step)
			if stepping.now.Before(latest.Add(-30 * time.Second)) {
				stepping.now = latest.Add(-30 * time.Second)
			}
			if stepping.now.After(latest) {
				latest = stepping.now
			}
			honest.now = latest
			honest.admitted(client, 1, 0, 1)
			stepping.admitted(client, 1, 0, 1)
		}
		if a, b := len(honest.open), len(stepping.open); b > a+1 || b < a-1 {
			rt.Errorf("a clock that goes forward admits %d, one that steps back %d", a, b)
		}
	})
}

// TestBudgetsHoldWhileTheClockIsBack: usage is booked to the window that has begun, also when the clock is
// back in an earlier one, and in both limiters.
func TestBudgetsHoldWhileTheClockIsBack(t *testing.T) {
	midnight := noon().Add(12 * time.Hour) // also the end of a month
	for _, c := range []struct {
		limits  Limits
		before  int           // days that the gateway served before the present one
		back    time.Duration // of the clock, after half of the budget is spent
		refused bool          // the budget has ended, by the clock
	}{
		{Limits{DayTokens: 20}, 0, time.Hour, true},
		{Limits{DayTokens: 20}, 0, 24 * time.Hour, true},
		{Limits{DayTokens: 20}, 1, 24 * time.Hour, true},
		{Limits{DayTokens: 20}, 2, 24 * time.Hour, true},
		{Limits{DayTokens: 20}, 2, 47 * time.Hour, true},
		{Limits{DayMoney: 20}, 1, 24 * time.Hour, true},
		{Limits{MonthTokens: 20}, 1, 24 * time.Hour, true},
		{Limits{MonthMoney: 20}, 0, 24 * time.Hour, true},
		{Limits{DayTokens: 20}, 1, 365 * 24 * time.Hour, false}, // the earlier time was wrong
		{Limits{MonthTokens: 20}, 0, 10 * 24 * time.Hour, false},
	} {
		for _, remote := range []bool{false, true} {
			t.Run(fmt.Sprint(c, remote), func(t *testing.T) {
				h, client := newHouse(), caller(c.limits, Limits{})
				var at SubjectState
				serve := func(n int) (served int) {
					for range n {
						charge := &Charge{Caller: client, At: h.now}
						at = h.BeginRemote(charge, nil)[0]
						h.AbortRemote(charge)
						if h.TakeCharge(charge, 1).Refused != "" {
							continue
						}
						if remote { // the shared counters have the same sums
							h.SettleCharge(charge, Used{Refund: true}, h.now)
							h.BeginRemote(charge, nil)
							h.CommitRemote(charge)
						}
						h.SettleCharge(charge, Used{Tokens: 5, Money: 5}, h.now)
						if s := h.SubjectStates(charge, nil)[0]; s.Day.Index != at.Day.Index || s.Day.Own.Tokens < 5 {
							t.Fatalf("admitted in window %d, settled in %d with %+v", at.Day.Index, s.Day.Index, s.Day)
						}
						served++
					}
					return served
				}
				for d := c.before; d > 0; d-- {
					h.now = midnight.Add(time.Minute - time.Duration(d)*24*time.Hour)
					serve(1)
				}
				h.now = midnight.Add(time.Minute)
				if n := serve(2); n != 2 {
					t.Fatalf("%d of 2 requests pass half of the budget", n)
				}
				day := at.Day.Index
				h.now = h.now.Add(-c.back)
				if n := serve(10); c.refused && n != 2 || !c.refused && n != 4 {
					t.Errorf("%d requests pass after the clock went back by %v", n, c.back)
				}
				if states := h.DirtySubjects(h.now, nil); len(states) != 1 || c.refused && states[0].Day.Index != day {
					t.Errorf("the shared counters get %+v, want those of window %d", states, day)
				}
			})
		}
	}
}

func TestWrongClockBlocksNoBucketForLong(t *testing.T) {
	h := newHouse()
	client := caller(Limits{RPM: 60}, Limits{})
	h.now = h.now.Add(24 * time.Hour * 365)
	h.admitted(client, 10, 0, 1)
	h.now = noon()
	if n := h.admitted(client, 20, 0, 1); n != 10 {
		t.Errorf("set right, it admits %d", n)
	}
}

func TestReturnedWaitIsSufficientAndTight(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limit := rapid.Int64Range(1, 1_000_000)
		l := Limits{RPM: limit.Draw(rt, "rpm"), RPS: limit.Draw(rt, "rps"), Burst: rapid.Int64Range(0, 50).Draw(rt, "burst"),
			TPM: limit.Draw(rt, "tpm")}
		client, h, share := caller(l, Limits{}), newHouse(), rapid.IntRange(1, 5).Draw(rt, "share")
		tokens := rapid.Int64Range(0, l.TPM)
		for range 300 {
			h.now = h.now.Add(time.Duration(rapid.IntRange(0, 1000).Draw(rt, "µs")) * time.Microsecond)
			cost := tokens.Draw(rt, "tokens")
			v := h.take(client, cost, share)
			if v.Refused == "" {
				continue
			}
			if v.Wait <= 0 || v.Wait%time.Microsecond != 0 {
				rt.Fatalf("refused with the wait %v", v.Wait)
			}
			const early = 100 * time.Microsecond // slack lets pass a millionth of a unit early: 60 µs of one a minute
			h.now = h.now.Add(v.Wait - early)
			if v.Wait > early && h.take(client, cost, share).Refused == "" {
				rt.Fatalf("admitted before the wait of %v was over", v.Wait)
			}
			h.now = h.now.Add(early)
			if late := h.take(client, cost, share); late.Refused != "" {
				rt.Fatalf("refused after the wait of %v: %+v", v.Wait, late)
			}
			return
		}
	})
}

func TestMinuteAdmitsItsRateAndABurst(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := Limits{RPM: rapid.Int64Range(1, 600).Draw(rt, "rpm"), Burst: rapid.Int64Range(0, 100).Draw(rt, "burst")}
		h, client, start := newHouse(), caller(l, Limits{}), noon()
		admitted := int64(0)
		for h.now.Sub(start) < 3*time.Minute {
			admitted += int64(h.admitted(client, rapid.IntRange(1, 100).Draw(rt, "n"), 0, 1))
			h.now = h.now.Add(time.Duration(rapid.IntRange(1, 20_000).Draw(rt, "ms")) * time.Millisecond)
			if most := l.RequestBurst() + int64(h.now.Sub(start).Minutes()*float64(l.RPM)) + 1; admitted > most {
				rt.Fatalf("after %v %d are admitted, at most %d may be", h.now.Sub(start), admitted, most)
			}
		}
	})
}

// RS-04: one of several gateways enforces its part: more than nothing and less than all.
func TestGatewayWithoutRedisEnforcesItsShare(t *testing.T) {
	client := caller(Limits{RPM: 60, TPM: 6000, Concurrent: 10}, Limits{})
	for share, want := range map[int]int{0: 10, 1: 10, 2: 5, 4: 3, 100: 1} {
		if got := newHouse().admitted(client, 50, 0, share); got != want {
			t.Errorf("one of %d admits %d, want %d", share, got, want)
		}
	}
	h := newHouse()
	// A reservation above the share and within the limit is admitted and booked.
	if v := h.take(client, 6000, 4); v.Refused != "" {
		t.Fatalf("a large reservation is %+v", v)
	}
	if v := h.take(client, 1, 4); v.Refused != LimitTPM || v.Wait != time.Duration(4501)*40*time.Millisecond {
		t.Errorf("after it: %+v", v)
	}
	if v := h.take(client, 6001, 4); v.Refused != LimitTokenBurst {
		t.Errorf("above the limit: %+v", v)
	}
	budget := caller(Limits{DayTokens: 100}, Limits{})
	h.take(budget, 0, 4)
	h.open = h.open[1:]
	h.settle(Used{Tokens: 60})
	if v := h.take(budget, 0, 4); v.Refused != "" {
		t.Errorf("budgets are whole: %+v", v)
	}
}

// RL-05: however requests end, all slots are free afterwards.
func TestEachSlotIsFreedAtTheEnd(t *testing.T) {
	l, client := NewLimiter(), caller(Limits{Concurrent: 2, RPM: 1_000_000, Burst: 1_000_000}, Limits{Concurrent: 2})
	var wg sync.WaitGroup
	var mu sync.Mutex
	most := int64(0)
	for g := range 8 {
		wg.Go(func() {
			for i := range 500 {
				c := &Charge{Caller: client, At: noon()}
				if l.TakeCharge(c, 1).Refused != "" {
					continue
				}
				mu.Lock()
				most = max(most, l.Inflight("x", ""))
				mu.Unlock()
				l.SettleCharge(c, Used{Refund: (g+i)%3 == 0}, noon())
			}
			l.Forget("x", "")
			l.Idle()
			l.DirtySubjects(noon(), nil)
		})
	}
	wg.Wait()
	if !l.Idle() || most > 2 {
		t.Errorf("%d were under way at once, at the end %d", most, l.Inflight("x", ""))
	}
	for range 2 {
		if v := l.TakeCharge(&Charge{Caller: client, At: noon()}, 1); v.Refused != "" {
			t.Errorf("afterwards: %+v", v)
		}
	}
}

func TestCallerWithoutLimitsIsNotCounted(t *testing.T) {
	h := newHouse()
	if v := h.take(Anonymous(), 1<<40, 1); v != (Admission{}) || len(h.subjects) != 0 {
		t.Errorf("%+v, %d subjects", v, len(h.subjects))
	}
	h.settle(Used{Tokens: 5})
	if !h.Idle() || len(h.subjects) != 0 {
		t.Error("something is counted")
	}
}

func TestOnlyIdleUnknownSubjectsAreForgotten(t *testing.T) {
	h := newHouse()
	for i := range 10 {
		c := NewCaller(Tenant{Name: fmt.Sprint("t", i), Limits: Limits{Concurrent: 1, DayTokens: 100}},
			Key{ID: "k", Limits: Limits{RPM: 1}})
		h.take(c, 0, 1)
	}
	for range 8 {
		h.settle(Used{Tokens: 1})
	}
	for i := range 10 {
		name := fmt.Sprint("t", i)
		if forgotten := h.Forget(name, "k"); forgotten != (i < 8) {
			t.Errorf("the key of %s is forgotten: %v", name, forgotten)
		}
		if i > 0 && h.Forget(name, "") != (i < 8) {
			t.Errorf("%s is kept: %v", name, i < 8)
		}
	}
	if !h.Forget("nobody", "") {
		t.Error("an unknown tenant is kept")
	}
	if len(h.subjects) != 5 { // t0, and t8 and t9 with their keys
		t.Errorf("%d subjects are known", len(h.subjects))
	}
	if day, _ := h.Spent("t0", "", h.now); day.Tokens != 1 {
		t.Errorf("the kept subject has spent %v", day)
	}
	h.settle(Used{})
	h.settle(Used{})
	if !h.Idle() {
		t.Error("something is under way")
	}
}

func TestSeedRaisesAndNeverLowers(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l, client := NewLimiter(), caller(Limits{DayTokens: 1, DayMoney: 1}, Limits{})
		amount := rapid.Int64Range(0, 100)
		for range rapid.IntRange(1, 20).Draw(rt, "steps") {
			before, _ := l.Spent("x", "", noon())
			s := Spent{Tokens: amount.Draw(rt, "tokens"), Money: Money(amount.Draw(rt, "money"))}
			want := before.raised(s)
			if rapid.Bool().Draw(rt, "settle") {
				c := &Charge{Caller: client, At: noon(), IgnoreBudget: true}
				l.CommitRemote(c)
				l.SettleCharge(c, Used{Tokens: s.Tokens, Money: s.Money}, noon())
				want = Spent{Tokens: before.Tokens + s.Tokens, Money: before.Money + s.Money}
			} else {
				l.Seed("x", "", noon(), s, Spent{})
			}
			if got, _ := l.Spent("x", "", noon()); got != want {
				rt.Fatalf("%v becomes %v, want %v", before, got, want)
			}
		}
	})
}

func TestWindowsLongOverAreNotBooked(t *testing.T) {
	h := newHouse()
	client := caller(Limits{DayTokens: 100}, Limits{})
	for range 3 {
		h.take(client, 0, 1)
		h.now = h.now.Add(24 * time.Hour)
	}
	for range 3 {
		h.settle(Used{Tokens: 7})
	}
	for back, want := range map[int]int64{3: 0, 2: 7, 1: 7, 0: 0} {
		if day, _ := h.Spent("x", "", h.now.Add(-24*time.Hour*time.Duration(back))); day.Tokens != want {
			t.Errorf("%d days ago %d are spent, want %d", back, day.Tokens, want)
		}
	}
}

// Usage that is sent to shared counters and returned by them is counted once, in any order of
// replies.
func TestSharedCountersCountNothingTwice(t *testing.T) {
	l, client := NewLimiter(), caller(Limits{DayTokens: 1000}, Limits{})
	settle := func(n int64) {
		c := &Charge{Caller: client, At: noon()}
		l.CommitRemote(c)
		l.SettleCharge(c, Used{Tokens: n}, noon())
	}
	spent := func() int64 { day, _ := l.Spent("x", "", noon()); return day.Tokens }
	settle(10)
	first := l.DirtySubjects(noon(), nil)
	settle(5)
	second := l.DirtySubjects(noon(), nil)
	if len(first) != 1 || first[0].Day.Own.Tokens != 10 || second[0].Day.Own.Tokens != 15 ||
		second[0].Sequence <= first[0].Sequence || second[0].Ended != 2 {
		t.Fatalf("owing %+v, then %+v", first, second)
	}
	heard := func(sum, own int64) SharedCounters {
		h := SharedCounter{Sum: Spent{Tokens: sum}, Own: Spent{Tokens: own}}
		return SharedCounters{Day: h, Month: h}
	}
	l.UpdateShared(&first[0], heard(115, 15)) // 100 are others'; the second word overtook the first
	l.UpdateShared(&second[0], heard(115, 15))
	l.UpdateShared(&first[0], heard(110, 10))
	if spent() != 115 || len(l.DirtySubjects(noon(), nil)) != 0 {
		t.Errorf("%d are spent, owing %+v", spent(), l.DirtySubjects(noon(), nil))
	}
	settle(1)
	l.Seed("x", "", noon(), Spent{Tokens: 116}, Spent{}) // the ledger knows it already
	if s := l.DirtySubjects(noon(), nil); spent() != 116 || s[0].Day.Shared.Tokens != 115 {
		t.Errorf("%d are spent, owing %+v", spent(), s)
	}
}

func TestRemoteDecisionTakesNothingUntilCommit(t *testing.T) {
	l, client := NewLimiter(), caller(Limits{Concurrent: 1, RPM: 60}, Limits{RPM: 6})
	c := &Charge{Caller: client, At: noon()}
	s := l.BeginRemote(c, nil)
	if len(s) != 2 || s[0].Key != "" || s[1].Key != "k" || s[0].Pending != 0 || l.Idle() || l.Inflight("x", "") != 0 {
		t.Fatalf("asking is %+v", s)
	}
	if again := l.BeginRemote(c, nil); again[0].Pending != 1 {
		t.Errorf("asking twice is %+v", again)
	}
	l.AbortRemote(c)
	l.CommitRemote(c)
	if v := l.TakeCharge(c, 1); v.Refused != LimitRPM || v.Scope != "key" || l.Inflight("x", "") != 1 || l.Idle() {
		t.Errorf("booked: %+v", v)
	}
	l.SettleCharge(c, Used{}, noon())
	if s := l.SubjectStates(c, nil); !l.Idle() || len(s) != 2 || s[0].Ended != 1 {
		t.Errorf("at the end it is %+v", s)
	}
}

func TestRemoteAdmissionEqualsALocalOne(t *testing.T) {
	c := &Charge{Caller: caller(Limits{RPM: 60, TPM: 600}, Limits{RPS: 2}), At: noon()}
	used := [][3]float64{{3.5, 0, 100}, {0, 2, 0}}
	got := RemoteAdmission(c, LimitRPS, 1, 500*time.Millisecond, used)
	want := Admission{Refused: LimitRPS, Scope: "key", Wait: 500 * time.Millisecond,
		Requests: Meter{true, 2, 0, time.Second}, Tokens: Meter{true, 600, 500, 10 * time.Second}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if got := RemoteAdmission(c, LimitMonthMoney, 0, 0, nil); got.Wait != 12*time.Hour || got.Scope != "tenant" {
		t.Errorf("a budget is %+v", got)
	}
	if got := RemoteAdmission(c, "", 0, 0, used[:1]); got.Refused != "" ||
		got.Requests != (Meter{true, 60, 6, 3500 * time.Millisecond}) {
		t.Errorf("admitted it is %+v", got)
	}
}

func TestHugeLimitsDoNotOverflow(t *testing.T) {
	huge := int64(1) << 62
	h, client := newHouse(),
		caller(Limits{RPM: huge, RPS: huge, Burst: huge, TPM: huge, TokenBurst: huge, Concurrent: huge, DayTokens: huge},
			Limits{RPM: 1, TPM: 1, TokenBurst: huge})
	if v := h.take(client, huge, 1); v.Refused != "" || v.Tokens.Reset < 0 || v.Requests.Reset < 0 {
		t.Errorf("%+v", v)
	}
	if v := h.take(client, huge, 1); v.Refused != LimitTPM || v.Wait <= 0 {
		t.Errorf("%+v", v)
	}
	h.settle(Used{Tokens: huge, Money: Money(huge)})
	h.take(caller(Limits{}, Limits{}), 0, 1)
	for range 3 {
		h.Seed("x", "", h.now, Spent{Tokens: huge, Money: Money(huge)}, Spent{})
	}
	if day, _ := h.Spent("x", "", h.now); day.Tokens <= 0 || day.Money <= 0 {
		t.Errorf("%v are spent", day)
	}
}

// full returns a caller with every limit.
func full() *Caller {
	l := Limits{RPM: 1 << 40, RPS: 1 << 40, TPM: 1 << 50, Concurrent: 1 << 40, DayTokens: 1 << 60, MonthTokens: 1 << 60,
		DayMoney: 1 << 60, MonthMoney: 1 << 60}
	return caller(l, l)
}

func BenchmarkTakeAndSettleCharge(b *testing.B) {
	l, c := NewLimiter(), &Charge{Caller: full(), At: noon(), Tokens: 100}
	b.ReportAllocs()
	for b.Loop() {
		if v := l.TakeCharge(c, 1); v.Refused != "" {
			b.Fatal(v)
		}
		l.SettleCharge(c, Used{Tokens: 10, Money: 1}, noon())
	}
}

func BenchmarkTakeAndSettleChargeOfManyAtOnce(b *testing.B) {
	l, client := NewLimiter(), full()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		c := &Charge{Caller: client, At: noon(), Tokens: 100}
		for pb.Next() {
			l.TakeCharge(c, 1)
			l.SettleCharge(c, Used{Tokens: 10, Money: 1}, noon())
		}
	})
}
