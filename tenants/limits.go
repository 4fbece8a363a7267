package tenants

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// Limits bounds the usage of a tenant or of one of its keys; 0 is no limit. A request counts
// against the limits of its tenant and of its key, and must pass both.
type Limits struct {
	RPM         int64 `yaml:"rpm" json:"rpm,omitempty" max:"1000000000" doc:"Requests per minute."`
	RPS         int64 `yaml:"rps" json:"rps,omitempty" max:"1000000000" doc:"Requests per second."`
	Burst       int64 `yaml:"burst" json:"burst,omitempty" max:"1000000000" absent:"a sixth of 'rpm', or 'rps'" doc:"Requests that may arrive at once. Needs 'rpm' or 'rps'."`
	TPM         int64 `yaml:"tpm" json:"tpm,omitempty" max:"1000000000000000" doc:"Tokens per minute, of prompts and outputs."`
	TokenBurst  int64 `yaml:"token_burst" json:"token_burst,omitempty" max:"1000000000000000" absent:"'tpm'" doc:"Tokens that may be reserved at once. Needs 'tpm'."`
	Concurrent  int64 `yaml:"concurrent" json:"concurrent,omitempty" max:"1000000000" doc:"In-flight requests."`
	DayTokens   int64 `yaml:"day_tokens" json:"day_tokens,omitempty" max:"1000000000000000" doc:"Tokens per UTC day."`
	MonthTokens int64 `yaml:"month_tokens" json:"month_tokens,omitempty" max:"1000000000000000" doc:"Tokens per UTC month."`
	DayMoney    Money `yaml:"day_money" json:"day_money,omitempty" max:"1000000000" doc:"Money per UTC day, at the prices of tiers and pools."`
	MonthMoney  Money `yaml:"month_money" json:"month_money,omitempty" max:"1000000000" doc:"Money per UTC month, at the prices of tiers and pools."`
}

// RequestBurst returns the number of requests that RPM admits at once: Burst, or a sixth of RPM, at
// least one.
func (l *Limits) RequestBurst() int64 {
	return cmp.Or(l.Burst, max(1, l.RPM/6))
}

// SecondBurst returns the number of requests that RPS admits at once: Burst, or RPS.
func (l *Limits) SecondBurst() int64 {
	return cmp.Or(l.Burst, max(1, l.RPS))
}

// TokensAtOnce returns the number of tokens that TPM lets requests reserve at once: TokenBurst, or
// TPM.
func (l *Limits) TokensAtOnce() int64 {
	return cmp.Or(l.TokenBurst, l.TPM)
}

// Budgeted reports whether there is any budget.
func (l *Limits) Budgeted() bool {
	return l.DayTokens > 0 || l.MonthTokens > 0 || l.DayMoney > 0 || l.MonthMoney > 0
}

// Any reports whether there is any limit.
func (l *Limits) Any() bool {
	return l.RPM > 0 || l.RPS > 0 || l.TPM > 0 || l.Concurrent > 0 || l.Budgeted()
}

// Money is an amount in nano-units (billionths) of the currency of the prices. Its text form is
// a decimal number of units.
type Money int64

// Unit is one unit of the currency.
const Unit Money = 1_000_000_000

// maxUnits is the largest amount in units. In nano-units it is about a ninth of the largest int64.
const maxUnits = 1_000_000_000

// ParseMoney parses a decimal number of units with at most nine decimals, from 0 to a thousand
// million.
func ParseMoney(text string) (Money, error) {
	whole, fraction, _ := strings.Cut(text, ".")
	digits := func(s string) bool { return strings.Trim(s, "0123456789") == "" }
	if whole == "" && fraction == "" || !digits(whole) || !digits(fraction) || len(fraction) > 9 || len(whole) > 10 {
		return 0, fmt.Errorf("%q is not an amount: write a number of units such as 12.50, with at most 9 decimals", text)
	}
	units, _ := strconv.ParseInt("0"+whole, 10, 64)
	nanos, _ := strconv.ParseInt((fraction + "000000000")[:9], 10, 64)
	if units > maxUnits || units == maxUnits && nanos > 0 {
		return 0, fmt.Errorf("%q is too much: write at most %d units", text, maxUnits)
	}
	return Money(units)*Unit + Money(nanos), nil
}

// String returns the amount in the form that ParseMoney reads.
func (m Money) String() string {
	sign := ""
	if m < 0 {
		sign, m = "-", -m
	}
	s := fmt.Sprintf("%s%d.%09d", sign, m/Unit, m%Unit)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

// MarshalJSON returns the amount as a number of units.
func (m Money) MarshalJSON() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalJSON parses a number of units.
func (m *Money) UnmarshalJSON(b []byte) (err error) {
	*m, err = ParseMoney(string(b))
	return err
}

// Price is the cost of tokens of a tier, in units of money per million tokens. The zero Price
// is free.
type Price struct {
	Input       float64  `yaml:"input" json:"input" max:"1000000" doc:"Price of a million prompt tokens."`
	CachedInput *float64 `yaml:"cached_input,omitempty" json:"cached_input,omitempty" max:"1000000" absent:"'input'" doc:"Price of a million prompt tokens that the engine read from its cache."`
	Output      float64  `yaml:"output" json:"output" max:"1000000" doc:"Price of a million output tokens."`
}

// Cost returns the cost of a response. cached is the part of the prompt tokens that came from the
// engine's cache. The cost is rounded up to the next nano-unit, so that nothing with a price is free.
func (p Price) Cost(prompt, cached, output int64) Money {
	cached = min(max(cached, 0), max(prompt, 0))
	cachedPrice := p.Input
	if p.CachedInput != nil {
		cachedPrice = *p.CachedInput
	}
	return tokenPrice(max(prompt, 0)-cached, p.Input) + tokenPrice(cached, cachedPrice) +
		tokenPrice(max(output, 0), p.Output)
}

// Share returns a share of the cost, from 0 to 1, rounded up to the next nano-unit.
func (m Money) Share(share float64) Money { return min(m, Money(math.Ceil(float64(m)*share))) }

// tokenPrice returns the price of n tokens at perMillion units per million.
func tokenPrice(n int64, perMillion float64) Money {
	if n == 0 || !(perMillion > 0) {
		return 0
	}
	nanos := uint64(perMillion*float64(Unit) + 0.5) // of a million tokens
	high, low := bits.Mul64(uint64(n), nanos)
	const million = 1_000_000
	if high >= million {
		return maxUnits * Unit
	}
	quotient, rest := bits.Div64(high, low, million)
	if rest > 0 {
		quotient++
	}
	return Money(min(quotient, uint64(maxUnits*Unit)))
}
