package routing

import (
	"slices"
	"time"

	"tierway/routing/prefix"
)

// composed is a policy with a fallback, or with others for the requests of some rules. Its first chain
// serves the requests without a rule.
type composed struct {
	chains [][]Policy // by Request.Rule: a policy, and those that follow if it abstains
}

// Compose returns the policy of a pool: that of c, and for the requests with the rule i+1 that of
// rules[i]. The errors are those of [New].
func Compose(c Config, rules []Config) (Policy, error) {
	first, err := New(c)
	if err != nil || len(rules) == 0 {
		return first, err
	}
	chains := [][]Policy{linksOf(first)}
	for _, rule := range rules {
		p, err := New(rule)
		if err != nil {
			return nil, err
		}
		chains = append(chains, linksOf(p))
	}
	return &composed{chains}, nil
}

// linksOf returns the policies of a chain.
func linksOf(p Policy) []Policy {
	if c, ok := p.(*composed); ok {
		return c.chains[0]
	}
	return []Policy{p}
}

// Name returns the name of the policy for requests without a rule.
func (p *composed) Name() string { return p.chains[0][0].Name() }

func (p *composed) chain(r *Request) []Policy {
	return p.chains[p.rule(r)]
}

// rule returns the index of the request's chain. A request that waited while the rules were replaced may have
// the number of an earlier rule: it then has none.
func (p *composed) rule(r *Request) int {
	if r.Rule <= 0 || r.Rule >= len(p.chains) || r.Rules != 0 && r.Rules != len(p.chains)-1 {
		return 0
	}
	return r.Rule
}

// Pick returns the choice of the first policy of the request's chain that does not abstain. The record
// names that policy.
func (p *composed) Pick(r *Request, ws []View) (int, Reason) {
	for i, link := range p.chain(r) {
		if i > 0 {
			r.assessByLoad(ws)
		}
		if r.Record != nil {
			r.Record.Policy = link.Name()
		}
		if i, reason := link.Pick(r, ws); i >= 0 {
			return i, reason
		}
	}
	return -1, ""
}

// Plans reports whether all policies of the request's chain plan: any other one would take a full worker for
// an open one.
func (p *composed) Plans(r *Request) bool {
	return !slices.ContainsFunc(p.chain(r), func(q Policy) bool { return !plans(q, r) })
}

func (p *composed) facts() (all facts) {
	p.any(func(q Policy) bool {
		all |= factsOf(q)
		return false
	})
	return all
}

// any reports whether f is true for any of the policies.
func (p *composed) any(f func(Policy) bool) bool {
	for _, chain := range p.chains {
		for _, q := range chain {
			if f(q) {
				return true
			}
		}
	}
	return false
}

// Depth returns the length of the keys of the first policy that has any.
func (p *composed) Depth() (depth prefix.Depth) {
	p.any(func(q Policy) bool {
		a, ok := q.(Adaptive)
		if ok {
			depth = a.Depth()
		}
		return ok
	})
	return depth
}

// learnKeys lets the policies of a pool without rules learn. With rules, the rule of another gateway's request is
// unknown.
func (p *composed) learnKeys(now time.Time, chain []Block, workers int) {
	if len(p.chains) > 1 {
		return
	}
	for _, q := range p.chains[0] {
		if l, ok := q.(learnsKeys); ok {
			l.learnKeys(now, chain, workers)
		}
	}
}

func (p *composed) treeLimit() (blocks int, every time.Duration) {
	if p.facts()&usesCosts != 0 {
		return 0, 0 // kv_aware needs the model of the whole cache
	}
	p.any(func(q Policy) bool {
		if own, interval := treeLimit(q); own > blocks {
			blocks, every = own, interval
		}
		return false
	})
	return blocks, every
}

// clone copies the chain of the request.
func (p *composed) clone(r *Request) Policy {
	q := &composed{chains: make([][]Policy, len(p.chains))}
	copy(q.chains, p.chains)
	at := p.rule(r)
	q.chains[at] = nil
	for _, link := range p.chains[at] {
		q.chains[at] = append(q.chains[at], policyCopy(link, r))
	}
	return q
}
