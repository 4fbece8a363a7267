package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"tierway/decisions"
	"tierway/openai"
	"tierway/server/control"
	"tierway/store"
	"tierway/tenants"
)

// admission is what the limits say of a request.
type admission struct {
	x         *exchange
	grant     *store.Grant    // what charge has reserved; nil for nothing
	allowance tenants.Verdict // what is left
	at        time.Time
}

// take takes a charge from limits.
type take func(c *tenants.Charge) (*store.Grant, tenants.Verdict, error)

// take takes a charge from the limits of the request's caller.
func (ad *admission) take(c *tenants.Charge) (*store.Grant, tenants.Verdict, error) {
	x := ad.x
	return x.s.control.Stores.Limits.Take(x.in.r.Context(), c)
}

// charge asks the caller's limits for the request, and reserves what it may use.
// A refused request costs nothing. A spent budget moves those who chose so to
// the cheapest tier that they may use.
func (ad *admission) charge(from take) error {
	x := ad.x
	ad.at = time.Now() // not when the header came: a body may take minutes
	if len(x.caller.Subjects) == 0 {
		return nil
	}
	c := &tenants.Charge{Caller: x.caller.Caller, At: ad.at, Tokens: x.resolution.reserve(&x.parsed, x.caller.Caller), IgnoreBudget: x.resolution.stored}
	err := ad.admit(from, c)
	if err == nil && ad.allowance.Refused.Budget() && x.caller.Degrade {
		if cheaper, ok := x.resolver.degrade(x.resolution, ad.allowance.Refused); ok {
			x.resolution = cheaper
			c.Tokens, c.IgnoreBudget = x.resolution.reserve(&x.parsed, x.caller.Caller), true
			err = ad.admit(from, c)
		}
	}
	if err == nil && ad.allowance.Refused != "" {
		return limitRefusal(c, ad.allowance)
	}
	return err
}

// admit asks limits for a charge.
func (ad *admission) admit(from take, c *tenants.Charge) (err error) {
	x := ad.x
	ad.grant, ad.allowance, err = from(c)
	if errors.Is(err, store.ErrLimitsAway) {
		return &openai.Error{Code: openai.CodeRatelimitUnavailable, RetryAfter: time.Second, Cause: err,
			Message: "The limits of this tenant cannot be checked right now. Try again."}
	}
	if err != nil {
		return fmt.Errorf("asking the limits: %w", err)
	}
	rateHeaders(x.answer.header(), ad.allowance)
	return nil
}

// limitRefusal is the answer to a request that a limit refuses.
func limitRefusal(c *tenants.Charge, v tenants.Verdict) error {
	e := &openai.Error{Code: openai.CodeRateLimitExceeded, Type: "requests", RetryAfter: max(v.Wait, time.Millisecond)}
	limits := limitsOf(c.Caller, v.Whose)
	switch v.Refused {
	case tenants.LimitTokenBurst:
		e.Type, e.NoRetry, e.RetryAfter = "tokens", true, 0
		e.Message = fmt.Sprintf("Request too large for this %s: it may use %d tokens, and at most %d are allowed at once. Shorten the prompt, or set a lower max_tokens.",
			v.Whose, c.Tokens, limits.TokensAtOnce())
	case tenants.LimitTPM:
		e.Type = "tokens"
		e.Message = fmt.Sprintf("Rate limit reached for this %s: %d tokens per min. This request may use %d. Please try again in %s.", v.Whose, limits.TPM, c.Tokens, shortDuration(v.Wait))
	case tenants.LimitRPM:
		e.Message = fmt.Sprintf("Rate limit reached for this %s: %d requests per min, %d at once. Please try again in %s.", v.Whose, limits.RPM, limits.RequestBurst(), shortDuration(v.Wait))
	case tenants.LimitRPS:
		e.Message = fmt.Sprintf("Rate limit reached for this %s: %d requests per second. Please try again in %s.", v.Whose, limits.RPS, shortDuration(v.Wait))
	case tenants.LimitConcurrent:
		e.Message = fmt.Sprintf("Rate limit reached for this %s: %d requests at a time. Wait for one to end.", v.Whose, limits.Concurrent)
	default:
		e.Code, e.Type = openai.CodeInsufficientQuota, ""
		e.Message = fmt.Sprintf("The %s budget of this %s is spent. It is renewed in %s; your operator can raise it.", budgetWords(v.Refused), v.Whose, shortDuration(v.Wait))
	}
	return e
}

// limitsOf are the limits of the tenant or of the key.
func limitsOf(c *tenants.Caller, whose string) tenants.Limits {
	for _, s := range c.Subjects {
		if (s.Key == "") == (whose == "tenant") {
			return s.Limits
		}
	}
	return tenants.Limits{}
}

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

// shortDuration is a duration as OpenAI's headers write it: 12ms, 1.5s, 6m0s.
// A part of a millisecond counts as a whole one, and longer times are told to
// the second, or to the tenth of one below a minute.
func shortDuration(d time.Duration) string {
	switch {
	case d <= 0:
		return "0s"
	case d < time.Second:
		return ((d + time.Millisecond - 1) / time.Millisecond * time.Millisecond).String()
	case d < time.Minute:
		return ((d + 100*time.Millisecond - 1) / (100 * time.Millisecond) * (100 * time.Millisecond)).String()
	}
	return ((d + time.Second - 1) / time.Second * time.Second).String()
}

// rateHeaders sets OpenAI's six headers, as far as there are such limits.
func rateHeaders(h http.Header, v tenants.Verdict) {
	set := setInto(h)
	if m := v.Requests; m.Set {
		set.set("X-Ratelimit-Limit-Requests", strconv.FormatInt(m.Limit, 10))
		set.set("X-Ratelimit-Remaining-Requests", strconv.FormatInt(m.Remaining, 10))
		set.set("X-Ratelimit-Reset-Requests", shortDuration(m.Reset))
	}
	if m := v.Tokens; m.Set {
		set.set("X-Ratelimit-Limit-Tokens", strconv.FormatInt(m.Limit, 10))
		set.set("X-Ratelimit-Remaining-Tokens", strconv.FormatInt(m.Remaining, 10))
		set.set("X-Ratelimit-Reset-Tokens", shortDuration(m.Reset))
	}
}

// dropRateHeaders takes back what rateHeaders has set.
func dropRateHeaders(h http.Header) {
	for _, of := range []string{"Requests", "Tokens"} {
		for _, what := range []string{"Limit", "Remaining", "Reset"} {
			h.Del("X-Ratelimit-" + what + "-" + of)
		}
	}
}

// refunded tells whether nothing of the request has reached a worker, so that it
// costs its tenant nothing.
func (ad *admission) refunded() bool { return ad.grant != nil && !ad.x.settlement.sent }

// settle gives back what charge has reserved, corrects it by what was used, and
// writes the request's one line of the ledger.
func (st *settlement) settle(d *decisions.Decision) {
	x := st.x
	if x.caller.Caller == nil {
		return
	}
	var price tenants.Price
	if x.resolution.pool != nil {
		price = x.resolution.pool.Price
	}
	money := price.Cost(st.usage.Prompt, st.usage.Cached, st.usage.Output)
	if x.admission.grant != nil {
		x.admission.grant.Settle(tenants.Used{Tokens: st.usage.Prompt + st.usage.Output, Money: money, Refund: x.admission.refunded()})
	}
	if x.s.control.Stores.Ledger == nil || !x.caller.inLedger {
		return
	}
	if x.caller.Key != "" {
		x.s.control.Database.LastUsed.NoteUse(x.caller.Key, x.in.start)
	}
	x.s.control.Stores.Ledger.Add(store.Row{ID: newUUID7(x.admission.bookedAt(), x.s.rand(), x.s.rand()), RequestID: d.RequestID, At: x.admission.bookedAt(),
		Tenant: x.caller.Tenant, Key: x.caller.Key, Class: d.Class, Route: d.Route, Tier: d.Tier, Model: x.resolution.knownModel(), Worker: d.Worker,
		Outcome: string(d.Result), Status: d.Status, Code: d.Code, Attempts: len(d.Attempts),
		Prompt: st.usage.Prompt, Cached: st.usage.Cached, Output: st.usage.Output, Money: money, Estimated: d.Estimated, DurationMs: int64(d.DurationMs)})
}

// bookedAt is the time to whose day the request belongs: of its admission, or of
// its coming where it was not admitted.
func (ad *admission) bookedAt() time.Time {
	x := ad.x
	if ad.at.IsZero() {
		return x.in.start
	}
	return ad.at
}

// estimate books tokens that no engine reported: the prompt's estimate, and the
// output that was counted on its way to the client. It is what the ledger calls
// estimated. Raw answers are not booked in tokens.
func (st *settlement) estimate(output int64) {
	x := st.x
	if x.resolution.free(&x.in) || x.in.dialect == openai.Audio || x.in.dialect == openai.Images || x.in.dialect == openai.Other {
		return
	}
	st.usage = openai.Usage{Prompt: x.facts.PromptTokens, Output: output}
	st.estimated = true
}

// newUUID7 returns a UUID of version 7 (RFC 9562): ordered by time, so that rows
// that are written together lie together.
func newUUID7(at time.Time, high, low uint64) string {
	return control.FormatUUID(uint64(at.UnixMilli())<<16|high&0xffff, low, 7)
}
