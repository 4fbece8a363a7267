package comparison

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"tierway/queue"
	"tierway/routing"
	"tierway/sim"
)

// Policy is a policy with its options.
type Policy struct {
	Name   string // the text of ParsePolicies
	Doc    string // one sentence; empty for the gateway's own policies
	base   string
	peer   *sim.Peer // nil for the gateway's own policies
	events bool
	// Queue means that requests wait in the gateway's queue for a free worker.
	Queue bool
	stages
}

// stages are the options of a policy for engines with roles. The zero value decides by the predicted cost.
type stages struct {
	threshold string // uncached_threshold; empty: by the predicted cost
	prefill   string // policy of the prefill stage; empty: the same policy
	whole     bool   // the engines have no roles
}

// The options that can follow the name of a policy of the gateway.
const (
	withEvents    = "events"     // engines publish the events of their caches
	withQueue     = "queue"      // requests wait in the gateway's queue for a free worker
	withThreshold = "threshold=" // as uncached_threshold
	withPrefill   = "prefill="   // as prefill_policy
	withWhole     = "whole"      // the engines have no roles
)

// AllPolicies stands for all policies of the gateway in a list of one.
const AllPolicies = "all"

// unsimulated is the policy that needs LMCache's controller.
const unsimulated = "lmcache_aware"

// simulated returns the names of the gateway's policies that are simulated.
func simulated() []string {
	return slices.DeleteFunc(routing.Names(), func(name string) bool { return name == unsimulated })
}

// ParsePolicies reads policies; spaces around them are ignored. There must be one at least, and each
// only once. [AllPolicies] alone stands for all policies of the gateway.
func ParsePolicies(texts []string) ([]Policy, error) {
	if len(texts) == 1 && strings.TrimSpace(texts[0]) == AllPolicies {
		texts = simulated()
	}
	if len(texts) == 0 {
		return nil, fmt.Errorf("write one or more of %s", strings.Join(PolicyNames(), ", "))
	}
	var all []Policy
	for _, text := range texts {
		p, err := parsePolicy(strings.TrimSpace(text))
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(all, p.same) {
			return nil, fmt.Errorf("policy %q is given twice: remove one of them", p.Name)
		}
		all = append(all, p)
	}
	return all, nil
}

// Foreign reports whether the policy is one of another router, which runs with one gateway only.
func (p Policy) Foreign() bool { return p.peer != nil }

// same reports whether q has p's name and options, in any order.
func (p *Policy) same(q Policy) bool {
	return p.base == q.base && p.events == q.events && p.Queue == q.Queue && p.stages == q.stages
}

// ThresholdOption returns the option threshold=N of the policy; empty without one.
func (p Policy) ThresholdOption() string {
	if p.threshold == "" {
		return ""
	}
	return withThreshold + p.threshold
}

// StageOption returns one option of the policy that has no effect without a hand-over; empty without one.
func (p Policy) StageOption() string {
	switch {
	case p.whole:
		return withWhole
	case p.prefill != "":
		return withPrefill + p.prefill
	}
	return p.ThresholdOption()
}

// parsePolicy reads a policy: a name of package routing with options, such as kv_aware+events+queue,
// or the name of a peer.
func parsePolicy(text string) (Policy, error) {
	name, options, _ := strings.Cut(text, "+")
	p := Policy{Name: text, base: name}
	for _, peer := range sim.Peers() {
		if peer.Name == name {
			p.peer, p.Doc = &peer, peer.Doc
		}
	}
	if name == unsimulated {
		return p, fmt.Errorf("policy %q is not simulated, because there is no LMCache: write kv_aware+events, which knows "+
			"more of the caches", name)
	}
	if p.peer == nil && !slices.Contains(simulated(), name) {
		return p, fmt.Errorf("policy %q is unknown: write one of %s", name, strings.Join(PolicyNames(), ", "))
	}
	for option := range strings.SplitSeq(options, "+") {
		switch {
		case option == "":
		case p.peer != nil:
			return p, fmt.Errorf("policy %q: %q has no options, because it is not a policy of this gateway: write %q", text,
				name, name)
		case option == withEvents:
			p.events = true
		case option == withQueue:
			p.Queue = true
		default:
			if err := p.setStages(option); err != nil {
				return p, fmt.Errorf("policy %q: %w", text, err)
			}
		}
	}
	if p.whole && p.stages != (stages{whole: true}) {
		return p, fmt.Errorf("policy %q: %s gives the engines no roles: remove it, or remove threshold= and prefill=", text,
			withWhole)
	}
	return p, nil
}

// setStages sets an option for engines with roles.
func (p *Policy) setStages(option string) error {
	if option == withWhole {
		p.whole = true
	} else if value, ok := strings.CutPrefix(option, withThreshold); ok {
		if n, err := strconv.ParseInt(value, 10, 64); err != nil || n < 0 {
			return fmt.Errorf("option %q: write uncached tokens, such as %s512", option, withThreshold)
		}
		p.threshold = value
	} else if value, ok := strings.CutPrefix(option, withPrefill); ok {
		if !slices.Contains(routing.Names(), value) {
			return fmt.Errorf("option %q: write a policy of the gateway: one of %s", option, strings.Join(routing.Names(), ", "))
		}
		p.prefill = value
	} else {
		return fmt.Errorf("option %q is unknown: write %s, %s, %sN, %sPOLICY or %s", option, withEvents, withQueue,
			withThreshold, withPrefill, withWhole)
	}
	return nil
}

// PolicyNames returns the names of all policies, those of the gateway first.
func PolicyNames() []string {
	names := simulated()
	for _, p := range sim.Peers() {
		names = append(names, p.Name)
	}
	return names
}

// metricsEach is the interval at which the gateway reads the engines' metrics.
const metricsEach = time.Second

// configure sets the policy and the admission of a simulation.
func (p *Policy) configure(c *sim.Config) {
	c.Admission, c.Scrape = sim.Direct, metricsEach
	if p.peer != nil {
		c.NewPolicy = p.peer.New
		return
	}
	c.Policy, c.Events = routing.Config{Name: p.base}, p.events
	c.Handover = p.handover(c.Handover)
	if p.Queue {
		c.Admission, c.Queue = sim.Queued, patientQueue()
	}
}

// handover returns the hand-over with the policy's options; nil without one.
func (p *Policy) handover(h *sim.Handover) *sim.Handover {
	if h == nil || p.whole {
		return nil
	}
	with := *h
	with.Policy, with.Threshold = routing.Config{Name: cmp.Or(p.prefill, p.base)}, routing.AutoThreshold
	if n, err := strconv.ParseInt(p.threshold, 10, 64); err == nil {
		with.Threshold = n
	}
	return &with
}

// patientQueue returns a queue that rejects no request, so that all policies answer the same requests.
func patientQueue() queue.Config {
	const depth, wait = 1 << 20, 24 * time.Hour
	q := queue.Config{MaxDepth: depth}
	for class := range q.MaxWait {
		q.MaxWait[class] = wait
	}
	return q
}
