package queue

import (
	"container/heap"
	"time"
)

// flow is the waiting requests of one tenant in one class, first in, first out, under a
// virtual start tag (start-time fair queueing: Goyal, Vin, Cheng 1996): the tokens granted
// to the tenant, per unit of its weight, since the class was last empty. The lowest tag
// goes next.
type flow struct {
	tenant string
	weight float64
	tag    float64
	ticketList
	depth     int
	bytes     int64   // of the bodies of its waiting requests
	unsettled float64 // tokens in its tag of requests whose usage is not known yet
	at        int     // in its class's heap; -1 while nothing waits
}

// start is the virtual time when the flow's next ticket is granted: its tag without the
// charges of unsettled requests, whose tokens may turn out never to be used.
func (f *flow) start() float64 { return max(0, f.tag-f.unsettled/f.weight) }

// flows is a heap of the flows in which something waits, the lowest tag first, of equal
// tags the oldest request.
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

// class is the waiting requests of one class.
type class struct {
	flows       map[string]*flow // of every tenant with something waiting, or with a tag ahead of theirs
	waiting     flows
	virtual     float64    // the tag of a tenant that was idle: see flow.start
	all         ticketList // of the class
	depth       int
	tokens      int64
	credit      float64 // tokens that aged requests of lower classes may be granted before this class
	nextRetryAt time.Time
	counts      ClassView // its totals
}

// insert makes a ticket wait.
func (c *class) insert(t *Ticket) {
	f := c.flow(t)
	t.flow = f
	f.depth++
	f.bytes += t.Bytes
	f.ticketList.insert(t)
	if f.at < 0 {
		f.tag = max(f.tag, c.virtual)
		heap.Push(&c.waiting, f)
	} else if f.first == t {
		heap.Fix(&c.waiting, f.at) // of equal tags the oldest goes first
	}
	c.all.insert(t)
	c.depth++
	c.tokens += t.Tokens
}

// flow returns the ticket's tenant's flow, with the weight that the tenant has now.
func (c *class) flow(t *Ticket) *flow {
	f := c.flows[t.Tenant]
	if f == nil {
		c.sweep()
		f = &flow{tenant: t.Tenant, tag: c.virtual, ticketList: ticketList{of: inFlow}, at: -1}
		c.flows[t.Tenant] = f
	}
	f.weight = t.weight()
	return f
}

// sweep forgets tenants without debt and waiting requests if there are many.
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

// remove takes a waiting ticket out.
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
		// A busy period is over: all start even.
		clear(c.flows)
		c.credit, c.virtual = 0, 0
	}
}

// charge books tokens on the flow's account; negative ones are given back.
func (c *class) charge(f *flow, tokens float64) {
	f.tag += tokens / f.weight
	if f.at >= 0 {
		heap.Fix(&c.waiting, f.at)
	}
}
