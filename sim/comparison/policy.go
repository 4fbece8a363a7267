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

// Policy is a policy with the way in which it is run.
type Policy struct {
	Name   string // as it was written
	Doc    string // one sentence; empty for the gateway's own policies
	base   string
	peer   *sim.Peer // nil for the gateway's own policies
	events bool
	queue  bool
}

// The options that can follow the name of a policy of the gateway.
const (
	withEvents = "events" // engines publish the events of their caches
	withQueue  = "queue"  // requests wait in the gateway's queue for a free worker
)

// ParsePolicy reads a policy: a name of package routing with options, such as kv_aware+events+queue,
// or the name of a peer.
func ParsePolicy(text string) (Policy, error) {
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
			p.queue = true
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
	if p.queue {
		c.Admission, c.Queue = sim.Queued, patientQueue()
	}
}

// patientQueue returns a queue that rejects no request, so that all policies answer the same ones.
func patientQueue() queue.Config {
	const depth, wait = 1 << 20, 24 * time.Hour
	q := queue.Config{MaxDepth: depth}
	for class := range q.MaxWait {
		q.MaxWait[class] = wait
	}
	return q
}
