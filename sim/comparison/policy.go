package comparison

import (
	"fmt"
	"slices"
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
}

// The options that can follow the name of a policy of the gateway.
const (
	withEvents = "events" // engines publish the events of their caches
	withQueue  = "queue"  // requests wait in the gateway's queue for a free worker
)

// AllPolicies stands for all policies of the gateway in a list of one.
const AllPolicies = "all"

// ParsePolicies reads policies; spaces around them are ignored. There must be one at least, and each
// only once. [AllPolicies] alone stands for all policies of the gateway.
func ParsePolicies(texts []string) ([]Policy, error) {
	if len(texts) == 1 && strings.TrimSpace(texts[0]) == AllPolicies {
		texts = routing.Names()
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
	return p.base == q.base && p.events == q.events && p.Queue == q.Queue
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
	if p.peer == nil && !slices.Contains(routing.Names(), name) {
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
			return p, fmt.Errorf("policy %q: option %q is unknown: write %s or %s", text, option, withEvents, withQueue)
		}
	}
	return p, nil
}

// PolicyNames returns the names of all policies, those of the gateway first.
func PolicyNames() []string {
	names := routing.Names()
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
	if p.Queue {
		c.Admission, c.Queue = sim.Queued, patientQueue()
	}
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
