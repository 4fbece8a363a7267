package queue

// ticketList is a list of tickets in the order of their sequence numbers. A ticket is in two
// lists: its flow's and its class's.
type ticketList struct {
	of          int // inFlow or inClass: the index of its links
	first, last *Ticket
}

// The lists that hold a ticket, as indexes of its links.
const (
	inFlow = iota
	inClass
	lists
)

// link is a ticket's neighbours in one list.
type link struct{ before, after *Ticket }

// insert adds a ticket at its place. That is nearly always the end; otherwise the place is
// searched from the nearer end.
func (l *ticketList) insert(t *Ticket) {
	before, after := l.last, (*Ticket)(nil)
	switch {
	case l.last == nil || l.last.seq < t.seq:
	case l.last.seq-t.seq < t.seq-min(t.seq, l.first.seq):
		for before != nil && before.seq > t.seq {
			before, after = before.links[l.of].before, before
		}
	default:
		for before, after = nil, l.first; after.seq < t.seq; {
			before, after = after, after.links[l.of].after
		}
	}
	t.links[l.of] = link{before, after}
	*l.afterLink(before), *l.beforeLink(after) = t, t
}

func (l *ticketList) remove(t *Ticket) {
	at := t.links[l.of]
	*l.afterLink(at.before), *l.beforeLink(at.after) = at.after, at.before
	t.links[l.of] = link{}
}

// afterLink returns where the list keeps the successor of a ticket; of nil, its first ticket.
func (l *ticketList) afterLink(t *Ticket) **Ticket {
	if t == nil {
		return &l.first
	}
	return &t.links[l.of].after
}

// beforeLink returns where the list keeps the predecessor of a ticket; of nil, its last ticket.
func (l *ticketList) beforeLink(t *Ticket) **Ticket {
	if t == nil {
		return &l.last
	}
	return &t.links[l.of].before
}
