package intake

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tierway/openai"
	"tierway/store"
	"tierway/tenants"
)

// Admission is the result of Charge: admitted with a reservation, or refused by a limit.
type Admission struct {
	Grant     *store.Grant      // the reservation; nil if nothing was reserved
	Allowance tenants.Admission // the limit that refused, or what remains
	At        time.Time         // of the admission; its UTC day and month are charged
}

// Limits admits or refuses charges. store.Limits reserves an admitted charge; Explain only reads.
type Limits interface {
	TakeCharge(ctx context.Context, c *tenants.Charge) (*store.Grant, tenants.Admission, error)
}

// Charge reserves the request's estimated usage against the caller's limits. A refused request
// costs nothing. If a budget is spent and the tenant has chosen to degrade, the resolution moves
// to the cheapest tier that the tenant may use.
func (it *Intake) Charge(in *Inbound, c *Caller, p *Parsed, res Resolution,
	limits Limits) (Admission, Resolution, error) {
	now := time.Now() // not the time of the header: a body may take minutes
	if len(c.Subjects) == 0 {
		return Admission{At: now}, res, nil
	}
	charge := &tenants.Charge{Caller: c.Caller, At: now, Tokens: res.reserve(p, c.Caller),
		IgnoreBudget: res.Stored || in.Kind == Feedback}
	ad, err := admit(in.HTTP.Context(), limits, charge)
	if err == nil && ad.Allowance.Refused.Budget() && c.Degrade {
		if cheaper, ok := it.resolver(in, c, p).degrade(res, ad.Allowance.Refused); ok {
			res = cheaper
			charge.Tokens, charge.IgnoreBudget = res.reserve(p, c.Caller), true
			ad, err = admit(in.HTTP.Context(), limits, charge)
		}
	}
	if err == nil && ad.Allowance.Refused != "" {
		err = limitRefusal(charge, ad.Allowance)
	}
	return ad, res, err
}

func admit(ctx context.Context, limits Limits, c *tenants.Charge) (Admission, error) {
	grant, allowance, err := limits.TakeCharge(ctx, c)
	ad := Admission{Grant: grant, Allowance: allowance, At: c.At}
	switch {
	case errors.Is(err, store.ErrLimitsAway):
		return ad, &openai.Error{Code: openai.CodeRatelimitUnavailable, RetryAfter: time.Second, Cause: err,
			Message: "The limits of this tenant cannot be checked because Redis is unavailable. Try again later."}
	case err != nil:
		return ad, fmt.Errorf("checking the limits: %w", err)
	}
	return ad, nil
}

// limitRefusal returns the answer to a request that a limit refuses.
func limitRefusal(c *tenants.Charge, v tenants.Admission) error {
	e := &openai.Error{Code: openai.CodeRateLimitExceeded, Type: "requests", RetryAfter: max(v.Wait, time.Millisecond)}
	limits := limitsOf(c.Caller, v.Scope)
	switch v.Refused {
	case tenants.LimitTokenBurst:
		e.Type, e.NoRetry, e.RetryAfter = "tokens", true, 0
		e.Message = fmt.Sprintf("Request too large for this %s: it may use %d tokens, and at most %d are allowed at once. "+
			"Shorten the prompt, or lower max_tokens.",
			v.Scope, c.Tokens, limits.TokensAtOnce())
	case tenants.LimitTPM:
		e.Type = "tokens"
		e.Message = fmt.Sprintf("Rate limit reached for this %s: %d tokens per min. This request may use %d. Please try "+
			"again in %s.", v.Scope, limits.TPM, c.Tokens, openai.ShortDuration(v.Wait))
	case tenants.LimitRPM:
		e.Message = fmt.Sprintf("Rate limit reached for this %s: %d requests per min, %d at once. Please try again in %s.",
			v.Scope, limits.RPM, limits.RequestBurst(), openai.ShortDuration(v.Wait))
	case tenants.LimitRPS:
		e.Message = fmt.Sprintf("Rate limit reached for this %s: %d requests per second. Please try again in %s.", v.Scope,
			limits.RPS, openai.ShortDuration(v.Wait))
	case tenants.LimitConcurrent:
		e.Message = fmt.Sprintf("Rate limit reached for this %s: %d requests at a time. Try again when one has ended.",
			v.Scope, limits.Concurrent)
	default:
		e.Code, e.Type = openai.CodeInsufficientQuota, ""
		e.Message = fmt.Sprintf("The %s budget of this %s is spent. It is renewed in %s; the operator can raise it.",
			budgetWords(v.Refused), v.Scope, openai.ShortDuration(v.Wait))
	}
	return e
}

// limitsOf returns the limits of scope, which is "tenant" or "key".
func limitsOf(c *tenants.Caller, scope string) tenants.Limits {
	for _, s := range c.Subjects {
		if (s.Key == "") == (scope == "tenant") {
			return s.Limits
		}
	}
	return tenants.Limits{}
}

// budgetWords returns the name of a budget for messages.
func budgetWords(l tenants.Limit) string {
	switch l {
	case tenants.LimitDayTokens:
		return "daily token"
	case tenants.LimitMonthTokens:
		return "monthly token"
	case tenants.LimitDayMoney:
		return "daily money"
	}
	return "monthly money"
}
