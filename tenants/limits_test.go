package tenants

import (
	"encoding/json"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestLimitsHaveTheirDefaults(t *testing.T) {
	for name, c := range map[string]struct {
		limits                    Limits
		requests, seconds, atOnce int64
		any, budgeted             bool
	}{
		"none":            {Limits{}, 1, 1, 0, false, false},
		"a sixth":         {Limits{RPM: 60}, 10, 1, 0, true, false},
		"at least one":    {Limits{RPM: 5, RPS: 3, TPM: 7}, 1, 3, 7, true, false},
		"bursts":          {Limits{RPM: 60, RPS: 3, Burst: 2, TPM: 7, TokenBurst: 5}, 2, 2, 5, true, false},
		"bursts alone":    {Limits{Burst: 2, TokenBurst: 5}, 2, 2, 5, false, false},
		"concurrent":      {Limits{Concurrent: 1}, 1, 1, 0, true, false},
		"a day's tokens":  {Limits{DayTokens: 1}, 1, 1, 0, true, true},
		"a month's":       {Limits{MonthTokens: 1}, 1, 1, 0, true, true},
		"a day's money":   {Limits{DayMoney: 1}, 1, 1, 0, true, true},
		"a month's money": {Limits{MonthMoney: 1}, 1, 1, 0, true, true},
	} {
		l := c.limits
		if l.RequestBurst() != c.requests || l.SecondBurst() != c.seconds || l.TokensAtOnce() != c.atOnce ||
			l.Any() != c.any || l.Budgeted() != c.budgeted {
			t.Errorf("%s: %d, %d, %d, %v, %v", name, l.RequestBurst(), l.SecondBurst(), l.TokensAtOnce(), l.Any(), l.Budgeted())
		}
	}
}

func TestMoneyRoundTrips(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := Money(rapid.Int64Range(0, int64(maxUnits*Unit)).Draw(rt, "money"))
		if back, err := ParseMoney(m.String()); err != nil || back != m {
			rt.Errorf("%d is written %s and read %d, %v", int64(m), m, back, err)
		}
		text, err := json.Marshal(m)
		if err != nil {
			rt.Fatal(err)
		}
		var back Money
		if err := json.Unmarshal(text, &back); err != nil || back != m {
			rt.Errorf("%d is written %s in JSON and read %d, %v", int64(m), text, back, err)
		}
	})
}

func TestAmountsAreDecimalsOfUnits(t *testing.T) {
	for text, want := range map[string]Money{
		"0": 0, "1": Unit, "12.50": 12*Unit + Unit/2, ".5": Unit / 2, "1.": Unit, "0.000000001": 1,
		"1000000000": maxUnits * Unit, "007": 7 * Unit,
	} {
		if got, err := ParseMoney(text); err != nil || got != want {
			t.Errorf("%q is %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", ".", "-1", "+1", "1e3", "0x1", "1,5", "1.0000000001", "1000000000.000000001",
		"1000000001", "99999999999", "1 ", " 1", "NaN", "null", `"1"`, "١", "1.2.3"} {
		if got, err := ParseMoney(text); err == nil {
			t.Errorf("%q is %d", text, got)
		}
	}
	if got := Money(-1500000000).String(); got != "-1.5" {
		t.Errorf("a debt is written %s", got)
	}
}

func FuzzParseMoney(f *testing.F) {
	for _, seed := range []string{"12.50", ".", "1000000000.1", "-1", "999999999.999999999"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := ParseMoney(text)
		if err != nil {
			return
		}
		if m < 0 || m > maxUnits*Unit {
			t.Errorf("%q is %d", text, m)
		}
		want, ok := new(big.Rat).SetString("0" + strings.TrimSuffix(text, "."))
		if !ok || want.Cmp(big.NewRat(int64(m), int64(Unit))) != 0 {
			t.Errorf("%q is %s", text, m)
		}
	})
}

// exact returns the price of n tokens, rounded up, without a bound.
func exact(n int64, perMillion float64) *big.Int {
	nanos := new(big.Int).SetUint64(uint64(perMillion*float64(Unit) + 0.5))
	nanos.Mul(nanos, big.NewInt(n)).Add(nanos, big.NewInt(999_999))
	return nanos.Div(nanos, big.NewInt(1_000_000))
}

func TestPriceIsExactAndRoundedUp(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		price := rapid.Float64Range(0, 1e6)
		p := Price{Input: price.Draw(rt, "input"), Output: price.Draw(rt, "output")}
		cachedPrice := p.Input
		if rapid.Bool().Draw(rt, "cached apart") {
			c := price.Draw(rt, "cached")
			p.CachedInput, cachedPrice = &c, c
		}
		tokens := rapid.Int64Range(0, 1<<32)
		prompt, output := tokens.Draw(rt, "prompt"), tokens.Draw(rt, "output")
		cached := rapid.Int64Range(0, prompt).Draw(rt, "cached")
		got := p.Cost(prompt, cached, output)
		want := exact(prompt-cached, p.Input)
		want.Add(want, exact(cached, cachedPrice)).Add(want, exact(output, p.Output))
		bounded := want.Cmp(big.NewInt(int64(maxUnits*Unit))) >= 0
		if !bounded && big.NewInt(int64(got)).Cmp(want) != 0 {
			rt.Errorf("%d, %d, %d tokens cost %d, want %s", prompt, cached, output, got, want)
		}
		if more := p.Cost(prompt+1, cached, output+1); more < got {
			rt.Errorf("more tokens cost %d, fewer %d", more, got)
		}
		if !bounded && p.CachedInput != nil && *p.CachedInput <= p.Input && cached < prompt &&
			p.Cost(prompt, cached+1, output) > got+1 {
			rt.Error("a cached token costs more than another")
		}
	})
}

func TestPricesDoNotOverflowAndAreNeverFree(t *testing.T) {
	cheap := 1e-3
	for name, c := range map[string]struct {
		price                  Price
		prompt, cached, output int64
		want                   Money
	}{
		"free":                   {Price{}, 1 << 40, 0, 1 << 40, 0},
		"one token":              {Price{Input: 1e-6}, 1, 0, 0, 1},
		"an even price":          {Price{Input: 2, Output: 8}, 1_000_000, 0, 500_000, 6 * Unit},
		"cached apart":           {Price{Input: 2, CachedInput: &cheap}, 1_000_000, 1_000_000, 0, Unit / 1000},
		"more cached than asked": {Price{Input: 2, CachedInput: &cheap}, 1_000_000, 9_000_000, 0, Unit / 1000},
		"negative counts":        {Price{Input: 2, Output: 2}, -5, -5, -5, 0},
		"not a number":           {Price{Input: math.NaN(), Output: -1}, 5, 0, 5, 0},
		"all there is":           {Price{Input: 1e9}, math.MaxInt64, 0, 0, maxUnits * Unit},
	} {
		if got := c.price.Cost(c.prompt, c.cached, c.output); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	dear := Price{Input: 1e9, Output: 1e9, CachedInput: ptr(1e9)}
	if got := dear.Cost(math.MaxInt64, math.MaxInt64/2, math.MaxInt64); got != 3*maxUnits*Unit {
		t.Errorf("the dearest request costs %s", got)
	}
}

func ptr[T any](v T) *T { return &v }

func TestWindowsAreUTCDaysAndMonths(t *testing.T) {
	zone := time.FixedZone("east", 9*3600)
	for _, c := range []struct {
		at         time.Time
		day, month int
	}{
		{time.Unix(0, 0), 0, 1970 * 12}, {time.Unix(86399, 0), 0, 1970 * 12}, {time.Unix(86400, 0), 1, 1970 * 12},
		{time.Date(2026, 3, 1, 8, 59, 59, 0, zone), 20512, 2026*12 + 1},
		{time.Date(2026, 3, 1, 9, 0, 0, 0, zone), 20513, 2026*12 + 2},
		{time.Date(2026, 12, 31, 23, 59, 59, 999, time.UTC), 20818, 2026*12 + 11},
		{time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC), 20819, 2027 * 12},
	} {
		if Day(c.at) != c.day || Month(c.at) != c.month {
			t.Errorf("%v is in day %d and month %d", c.at, Day(c.at), Month(c.at))
		}
	}
}

func TestBudgetsAreNamedFirst(t *testing.T) {
	for i, name := range LimitNames() {
		if name.Budget() != (i < 4) {
			t.Errorf("%s at %d is a budget: %v", name, i, name.Budget())
		}
	}
}
