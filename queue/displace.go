package queue

// maxVictims bounds the requests that are evicted for one new request.
const maxVictims = 16

// victimsLocked returns the requests to evict under the bounds of c so that t, which is in the
// queue already, may wait; nil if eviction does not help. If the class is full, the victim is
// the newest request of the tenant with the most waiting requests per weight. If bytes are
// short, the victims are the newest requests of less urgent classes, then those of the tenants
// of the class with the most waiting bytes per weight. Inside the class, only tenants with more
// per weight than t's tenant lose a request.
func (q *Queue) victimsLocked(c *Config, t *Ticket, reason string) []*Ticket {
	switch {
	case !c.Displace:
		return nil
	case reason == ShedBytes:
		return q.largestLocked(t, q.bytes-c.MaxBytes)
	case reason == ShedDepth && c.Waits(t.Class):
		var largest *flow
		for _, f := range q.classes[t.Class].waiting {
			if largest == nil || float64(f.depth)/f.weight > float64(largest.depth)/largest.weight {
				largest = f
			}
		}
		if largest != t.flow && float64(largest.depth)/largest.weight > float64(t.flow.depth)/t.flow.weight {
			return []*Ticket{largest.last}
		}
	}
	return nil
}

// largestLocked returns the requests to evict to free over bytes; nil if maxVictims requests
// do not suffice.
func (q *Queue) largestLocked(t *Ticket, over int64) (victims []*Ticket) {
	for i := Classes - 1; i > t.Class; i-- {
		for v := q.classes[i].all.last; v != nil && over > 0 && len(victims) < maxVictims; v = v.links[inClass].before {
			victims, over = append(victims, v), over-v.Bytes
		}
	}
	left := map[*flow]*remainder{} // flows that lose a request
	for over > 0 && len(victims) < maxVictims {
		v := q.classes[t.Class].largest(t.flow, left)
		if v == nil {
			break
		}
		victims, over = append(victims, v), over-v.Bytes
	}
	if over > 0 {
		return nil
	}
	return victims
}

// remainder is what a flow keeps waiting after its newest requests are evicted.
type remainder struct {
	last  *Ticket // nil: nothing
	bytes int64
}

// largest takes from left the newest request of the flow with the most waiting bytes per
// weight; nil if no flow has more than own.
func (c *class) largest(own *flow, left map[*flow]*remainder) *Ticket {
	var from *remainder
	limit := float64(own.bytes) / own.weight
	for _, f := range c.waiting {
		r := left[f]
		if r == nil {
			r = &remainder{last: f.last, bytes: f.bytes}
		}
		if share := float64(r.bytes) / f.weight; f != own && r.last != nil && share > limit {
			from, limit = r, share
			left[f] = r
		}
	}
	if from == nil {
		return nil
	}
	v := from.last
	from.last, from.bytes = v.links[inFlow].before, from.bytes-v.Bytes
	return v
}
