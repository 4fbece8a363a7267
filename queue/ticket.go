package queue

import (
	"errors"
	"fmt"
	"time"

	"tierway/routing"
)

// ErrWaiting means that the request waits; onWake announces the end of the wait.
var ErrWaiting = errors.New("the request waits in the queue")

// The reasons for shedding a request.
const (
	ShedDepth    = "depth"    // the class has its maximum number of waiting requests
	ShedBytes    = "bytes"    // the waiting bodies fill the queue
	ShedWait     = "wait"     // it reached its class's wait limit or its deadline
	ShedDeadline = "deadline" // it would be dispatched after its class's wait limit or its deadline
	// it was evicted for a more urgent request, or for one of a tenant with fewer waiting
	ShedDisplaced = "displaced"
	ShedEngine    = "engine" // no worker that could take it came up in time
)

// shedReasons has all reasons, in the order of ClassView.Shed.
var shedReasons = [...]string{ShedDepth, ShedBytes, ShedWait, ShedDeadline, ShedDisplaced, ShedEngine}

// ShedReasons returns all reasons for which requests are shed, in the order of ClassView.Shed.
func ShedReasons() []string { return shedReasons[:] }

// ShedError means that a bound of the queue refuses the request or ends its wait.
type ShedError struct {
	Reason     string        // one of ShedReasons
	RetryAfter time.Duration // when to retry; the retries of requests that are shed together are spaced out
}

// Error names the bound and the time to retry.
func (e *ShedError) Error() string {
	return fmt.Sprintf("shed by the queue (%s): retry after %s", e.Reason, e.RetryAfter)
}

// ErrMoved means that the request has left the queue for that of another pool: see Leave.
var ErrMoved = errors.New("the request moves to another queue")

type state uint8

const (
	stateNew        state = iota // it never waited, or has left
	stateWaiting                 // in its flow
	stateDispatched              // its lease is to be claimed
	stateEvicted                 // its wait ended with err
)

// Ticket is one request at a queue. Its owner sets the exported fields before Enter and must
// not change them while it waits. It may enter again for another attempt.
type Ticket struct {
	Request *routing.Request
	Tried   []*routing.Worker // workers to exclude
	Class   int
	Tenant  string
	Weight  int   // the tenant's weight in its class; 0 means 1
	Tokens  int64 // prompt plus expected answer
	// Expected means that Request.OutputTokens is the pool's expectation, at most MaxTokens. It
	// follows that expectation while the ticket waits.
	Expected  bool
	MaxTokens int64     // limit of the answer; 0: unbounded
	Bytes     int64     // size of the body
	Deadline  time.Time // zero: no deadline
	ID        string    // as List shows it
	// Movable means that the owner may take the ticket to the queue of another pool while no worker of
	// this pool is up. onWake is then called at intervals, and the ticket waits on until Leave.
	Movable bool
	Ref     any // for the owner

	// The rest is guarded by the queue's lock while the ticket waits, and belongs to its owner otherwise.
	state           state
	seq             uint64        // order of arrival; 0 before the first Enter
	entered         time.Time     // start of this wait, moved back by earlier waits
	waitingSince    time.Time     // start of this wait
	waited          time.Duration // total wait up to the last dispatch
	counted         bool          // counted in ClassView.Entered for this wait
	lease           routing.Lease
	err             error
	flow            *flow
	links           [lists]link
	path            [Classes - 1]step // how it was chosen, level by level
	promoted        bool
	charged         int64     // tokens on its flow's tag; 0: none
	unroutableSince time.Time // since when no worker that is up could take it; otherwise zero
	unroutableIndex int
	refusedBy       []*routing.Worker // workers with a breaker that refused it within breakerRefusalTTL
	refusedAt       time.Time
}

// startWait starts a wait. Earlier waits count; the time of attempts does not.
func (t *Ticket) startWait(now time.Time) { t.waitingSince, t.entered = now, now.Add(-t.waited) }

// ForOtherQueue returns a ticket for the queue of another pool, where the waits of t count. t must
// not wait.
func (t *Ticket) ForOtherQueue() *Ticket { return &Ticket{waited: t.waited} }

// Promoted reports whether a claimed ticket was dispatched as one of a higher class.
func (t *Ticket) Promoted() bool { return t.promoted }

// tokens returns the tokens that max_tokens_inflight counts.
func (t *Ticket) tokens() int64 { return t.Request.PromptTokens + t.Request.OutputTokens }

func (t *Ticket) weight() float64 { return float64(max(1, t.Weight)) }

// cost returns what a ticket costs its tenant's share: at least one token.
func (t *Ticket) cost() float64 { return float64(max(1, t.Tokens)) }

// excludedWorkers returns the workers that are not offered to the ticket.
func (t *Ticket) excludedWorkers(now time.Time) []*routing.Worker {
	if len(t.refusedBy) == 0 {
		return t.Tried
	}
	if now.Sub(t.refusedAt) >= breakerRefusalTTL {
		t.refusedBy = t.refusedBy[:0]
		return t.Tried
	}
	return append(t.Tried[:len(t.Tried):len(t.Tried)], t.refusedBy...)
}

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
