package queue

import (
	"container/heap"
	"time"
)

// flow is the waiting requests of one tenant in one class, first in, first out. Its tag is the
// virtual start time of start-time fair queueing (Goyal, Vin, Cheng 1996): the tokens dispatched
// to the tenant, per unit of its weight, since the class was last empty. The lowest tag is
// dispatched next.
type flow struct {
	weight float64
	tag    float64
	ticketList
	depth     int
	bytes     int64   // bodies of its waiting requests
	unsettled float64 // tokens in its tag of requests that are not settled
	at        int     // index in its class's heap; -1 while nothing waits
}

// start returns the virtual time of the flow's next dispatch: its tag without the charges of
// unsettled requests, whose tokens may never be used.
func (f *flow) start() float64 { return max(0, f.tag-f.unsettled/f.weight) }

// flows is a heap of the flows with waiting requests. The lowest tag is first; among equal
// tags, the oldest request.
type flows []*flow

func (h flows) Len() int { return len(h) }
func (h flows) Less(i, j int) bool {
	if h[i].tag != h[j].tag {
		return h[i].tag < h[j].tag
	}
	return h[i].first.seq < h[j].first.seq
}
func (h flows) Swap(i, j int) { h[i], h[j] = h[j], h[i]; h[i].at, h[j].at = i, j }
func (h *flows) Push(x any)   { f := x.(*flow); f.at = len(*h); *h = append(*h, f) }
func (h *flows) Pop() any {
	old := *h
	f := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	f.at = -1
	return f
}

type class struct {
	flows       map[string]*flow // by tenant, while something waits or its tag is ahead of virtual
	waiting     flows
	virtual     float64    // the tag that an idle tenant starts with: see flow.start
	all         ticketList // all tickets of the class
	depth       int
	tokens      int64
	credit      float64   // tokens that aged requests of lower classes may be dispatched before this class
	nextRetryAt time.Time // the time of the latest planned retry
	counts      ClassView // totals
}

func (c *class) insert(t *Ticket) {
	f := c.flowOf(t)
	t.flow = f
	f.depth++
	f.bytes += t.Bytes
	f.ticketList.insert(t)
	if f.at < 0 {
		f.tag = max(f.tag, c.virtual)
		heap.Push(&c.waiting, f)
	} else if f.first == t {
		heap.Fix(&c.waiting, f.at) // among equal tags the oldest is first
	}
	c.all.insert(t)
	c.depth++
	c.tokens += t.Tokens
}

// flowOf returns the flow of the ticket's tenant, and sets it to the tenant's current weight.
func (c *class) flowOf(t *Ticket) *flow {
	f := c.flows[t.Tenant]
	if f == nil {
		c.sweep()
		f = &flow{tag: c.virtual, ticketList: ticketList{of: inFlow}, at: -1}
		c.flows[t.Tenant] = f
	}
	f.weight = t.weight()
	return f
}

// sweep removes idle tenants without debt once there are many.
func (c *class) sweep() {
	const few = 64
	if len(c.flows) < few+2*len(c.waiting) {
		return
	}
	for tenant, f := range c.flows {
		if f.at < 0 && f.tag <= c.virtual {
			delete(c.flows, tenant)
		}
	}
}

// remove takes a waiting ticket out of the class.
func (c *class) remove(t *Ticket) {
	f := t.flow
	f.ticketList.remove(t)
	f.bytes -= t.Bytes
	if f.depth--; f.depth == 0 {
		heap.Remove(&c.waiting, f.at)
	} else {
		heap.Fix(&c.waiting, f.at)
	}
	c.all.remove(t)
	c.depth--
	c.tokens -= t.Tokens
	if c.depth == 0 {
		// The busy period is over: all tenants start equal.
		clear(c.flows)
		c.credit, c.virtual = 0, 0
	}
}

// charge adds tokens to the flow's tag; negative tokens are returned.
func (c *class) charge(f *flow, tokens float64) {
	f.tag += tokens / f.weight
	if f.at >= 0 {
		heap.Fix(&c.waiting, f.at)
	}
}
