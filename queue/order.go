package queue

import "time"

// step is the effect of a choice on one level's credit. A level is a class together with all
// lower ones.
type step int8

const (
	stepNone     step = iota
	stepOwn           // a ticket of the level's own class, while an aged one of a lower class waits
	stepPromoted      // an aged ticket of a lower class, dispatched as one of this level's class
)

// order iterates over the waiting tickets in the order of dispatch, as if a worker could take each
// of them. It does not change them. Classes are strictly ordered except for aged tickets. Inside a
// class, flows are ordered by their tags as if each earlier ticket were dispatched.
type order struct {
	q      *Queue
	fronts [Classes]front
	aged   [Classes]bool // the oldest ticket of the class has reached its age
	credit [Classes - 1]float64
}

func (o *order) begin(q *Queue, now time.Time) {
	o.q = q
	config := q.config.Load()
	for i := range q.classes {
		c := &q.classes[i]
		o.fronts[i].begin(c.waiting)
		o.aged[i] = c.all.first != nil && config.Age[i] > 0 && now.Sub(c.all.first.entered) >= config.Age[i]
		if i < Classes-1 {
			o.credit[i] = c.credit
		}
	}
}

// end drops the references to tickets.
func (o *order) end() {
	for i := range o.fronts {
		f := &o.fronts[i]
		clear(f.next)
		f.heap, f.next = nil, f.next[:0]
	}
}

// next returns the next ticket and how it was chosen on each level; nil after the last.
func (o *order) next() (*Ticket, [Classes - 1]step) {
	var path [Classes - 1]step
	from := o.choose(0, &path)
	if from < 0 {
		return nil, path
	}
	return o.fronts[from].popTicket(), path
}

// choose returns the class of the next ticket among the classes from level on; -1 for none. A
// lower class is chosen before the level's own while its oldest ticket is aged and credit is
// left.
func (o *order) choose(level int, path *[Classes - 1]step) int {
	own := -1
	if o.fronts[level].hasNext() {
		own = level
	}
	if level == Classes-1 {
		return own
	}
	lower := o.choose(level+1, path)
	if own < 0 || lower < 0 {
		return max(own, lower)
	}
	aged := lower
	if !o.aged[lower] {
		// The lower class is not aged and cannot be promoted now. It must not block an
		// aged ticket of a class below it.
		clear(path[level+1:])
		aged = o.agedBelow(lower)
	}
	switch {
	case aged < 0:
		return own
	case o.credit[level] > 0:
		path[level] = stepPromoted
		return aged
	}
	clear(path[level+1:]) // the choice below is dropped
	path[level] = stepOwn
	return own
}

// agedBelow returns the first class below the given one with an aged ticket; -1 for none.
func (o *order) agedBelow(class int) int {
	for i := class + 1; i < Classes; i++ {
		if o.aged[i] && o.fronts[i].hasNext() {
			return i
		}
	}
	return -1
}

// recordDispatch records that the ticket returned last was dispatched.
func (o *order) recordDispatch(t *Ticket, path [Classes - 1]step) {
	for level, s := range path {
		switch s {
		case stepOwn:
			o.credit[level] = accrueCredit(o.credit[level], t.cost()*o.q.config.Load().accrual())
		case stepPromoted:
			o.credit[level] -= t.cost()
		}
	}
}

// front iterates over the tickets of one class: a best-first traversal of the heap of its flows
// by the tags that their next tickets would have. k steps cost O(k log k).
type front struct {
	heap flows // the heap of the class, not changed
	next []frontEntry
}

// frontEntry is the next ticket of a flow during an iteration.
type frontEntry struct {
	tag    float64
	ticket *Ticket
	at     int // index of the flow in the heap while its children are to be pushed; otherwise -1
}

func (w *front) begin(h flows) {
	w.heap, w.next = h, w.next[:0]
	w.pushFlow(0)
}

// pushFlow adds the flow at that index of the heap to the iteration.
func (w *front) pushFlow(at int) {
	if at < len(w.heap) {
		w.push(frontEntry{tag: w.heap[at].tag, ticket: w.heap[at].first, at: at})
	}
}

func (w *front) hasNext() bool { return len(w.next) > 0 }

// popTicket returns the next ticket. There must be one.
func (w *front) popTicket() *Ticket {
	e := w.pop()
	if e.at >= 0 {
		w.pushFlow(2*e.at + 1)
		w.pushFlow(2*e.at + 2)
	}
	if next := e.ticket.links[inFlow].after; next != nil {
		w.push(frontEntry{tag: e.tag + e.ticket.cost()/e.ticket.flow.weight, ticket: next, at: -1})
	}
	return e.ticket
}

func (e *frontEntry) before(o *frontEntry) bool {
	if e.tag != o.tag {
		return e.tag < o.tag
	}
	return e.ticket.seq < o.ticket.seq
}

// push and pop keep next a binary heap. container/heap would allocate for each entry.
func (w *front) push(e frontEntry) {
	w.next = append(w.next, e)
	i := len(w.next) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !w.next[i].before(&w.next[parent]) {
			return
		}
		w.next[i], w.next[parent] = w.next[parent], w.next[i]
		i = parent
	}
}

func (w *front) pop() frontEntry {
	top, last := w.next[0], len(w.next)-1
	w.next[0] = w.next[last]
	w.next[last] = frontEntry{}
	w.next = w.next[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			return top
		}
		if child+1 < last && w.next[child+1].before(&w.next[child]) {
			child++
		}
		if !w.next[child].before(&w.next[i]) {
			return top
		}
		w.next[i], w.next[child] = w.next[child], w.next[i]
		i = child
	}
}
