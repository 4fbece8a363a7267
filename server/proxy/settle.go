package proxy

import (
	"net/http"
	"strconv"

	"tierway/openai"
	"tierway/server/control"
	"tierway/server/intake"
	"tierway/store"
	"tierway/tenants"
)

// rateHeaders sets OpenAI's six rate-limit headers, for the limits that exist.
func rateHeaders(h http.Header, v tenants.Admission) {
	set := setInto(h)
	if m := v.Requests; m.Set {
		set.set("X-Ratelimit-Limit-Requests", strconv.FormatInt(m.Limit, 10))
		set.set("X-Ratelimit-Remaining-Requests", strconv.FormatInt(m.Remaining, 10))
		set.set("X-Ratelimit-Reset-Requests", openai.ShortDuration(m.Reset))
	}
	if m := v.Tokens; m.Set {
		set.set("X-Ratelimit-Limit-Tokens", strconv.FormatInt(m.Limit, 10))
		set.set("X-Ratelimit-Remaining-Tokens", strconv.FormatInt(m.Remaining, 10))
		set.set("X-Ratelimit-Reset-Tokens", openai.ShortDuration(m.Reset))
	}
}

func dropRateHeaders(h http.Header) {
	for _, unit := range []string{"Requests", "Tokens"} {
		for _, field := range []string{"Limit", "Remaining", "Reset"} {
			h.Del("X-Ratelimit-" + field + "-" + unit)
		}
	}
}

// hasRateHeaders reports whether the answer carries rate-limit headers.
func hasRateHeaders(a *intake.Admission) bool {
	return a.Allowance.Requests.Set || a.Allowance.Tokens.Set
}

// settlement is the usage of a request, or of one attempt.
type settlement struct {
	usage     openai.Usage
	known     bool          // usage is booked
	estimated bool          // no engine reported the usage, or only a part of it
	note      string        // why the reported usage is implausible; "" if it is not
	sent      bool          // a worker may have received part of the request, so it is not refunded
	pool      *control.Pool // its prices apply; nil if usage is not booked
	kept      bool          // the answer came from the response cache
}

// settlement returns the usage of a request: that of the kept answer that the client received, else the usage that the
// attempts booked last. c is nil without a response cache.
func (d *dispatch) settlement(c *cached) (s settlement) {
	if c != nil && c.hit != nil {
		return c.hitSettlement()
	}
	for _, a := range d.attempts {
		sent := s.sent || a.used.sent
		if a.used.known || a.used.estimated {
			s = a.used
			s.pool = a.pool
		}
		s.sent = sent
	}
	return s
}

// refunded reports whether a request with a reservation costs its tenant nothing, because no worker can have received
// any part of it. A request without a pool needs no worker, and counts.
func (s settlement) refunded(g *store.Grant, pool *control.Pool) bool {
	return g != nil && pool != nil && !s.sent
}

// settleUsage replaces the reservation of a request by its usage. g is nil without a reservation, and pool without a
// pool.
func settleUsage(g *store.Grant, pool *control.Pool, s settlement) {
	if g == nil {
		return
	}
	used := tenants.Used{Tokens: s.usage.Prompt + s.usage.Output, Money: s.money(), Refund: s.refunded(g, pool)}
	if s.kept {
		used.Tokens = 0 // no engine has read or generated them
	}
	g.Settle(used)
}

// money returns the cost of the usage by the price of the pool that served it.
func (s settlement) money() tenants.Money {
	if s.pool == nil {
		return 0
	}
	if s.kept {
		return s.fullPrice().Share(s.pool.ResponseCache.CachedPrice)
	}
	return s.pool.Price.Cost(s.usage.Prompt, s.usage.Cached, s.usage.Output)
}

// fullPrice returns the price that the kept answer would have from an engine without a cached prefix.
func (s settlement) fullPrice() tenants.Money {
	return s.pool.Price.Cost(s.usage.Prompt, 0, s.usage.Output)
}

// saved returns the money that the response cache saved: the full price of the answer minus its cost.
func (s settlement) saved() tenants.Money {
	if !s.kept {
		return 0
	}
	return s.fullPrice() - s.money()
}

// bookEstimate books an estimated usage if the engine reported none: the estimate of the prompt,
// and output, which the gateway counted. The ledger marks it as estimated. Raw answers have no tokens.
func (a *attempt) bookEstimate(output int64) {
	x := a.x
	if x.resolution.Free(&x.in) || x.in.Dialect == openai.Audio || x.in.Dialect == openai.Images ||
		x.in.Dialect == openai.Other {
		return
	}
	a.used.usage, a.used.known, a.used.estimated = openai.Usage{Prompt: x.facts.PromptTokens, Output: output}, true, true
}
