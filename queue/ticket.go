package queue

import (
	"errors"
	"fmt"
	"time"

	"tierway/routing"
)

// ErrWaiting means that the request waits: the queue says when that is over.
var ErrWaiting = errors.New("the request waits in the queue")

// The reasons for which a request is shed.
const (
	ShedDepth     = "depth"     // as many of its class wait as may
	ShedBytes     = "bytes"     // the waiting bodies fill the queue
	ShedWait      = "wait"      // it has waited until its class's longest wait or its deadline
	ShedDeadline  = "deadline"  // its turn would come after its class's longest wait or its deadline
	ShedDisplaced = "displaced" // it was evicted for a more urgent request, or for one of a tenant with fewer waiting
	ShedEngine    = "engine"    // no worker was up for as long as it may wait for one
)

// shedReasons are all reasons, in the order of ClassView.Shed.
var shedReasons = [...]string{ShedDepth, ShedBytes, ShedWait, ShedDeadline, ShedDisplaced, ShedEngine}

// ShedReasons returns all reasons for which requests are shed, in the order of ClassView.Shed.
func ShedReasons() []string { return shedReasons[:] }

// ShedError means that the request does not wait, or waits no longer, because of a bound.
type ShedError struct {
	Reason     string        // one of ShedReasons
	RetryAfter time.Duration // when it should come again; those who are shed together are sent back one after the other
}

// Error names the bound.
func (e *ShedError) Error() string {
	return fmt.Sprintf("shed by the queue (%s), to come again in %s", e.Reason, e.RetryAfter)
}

// state is where a ticket stands.
type state uint8

const (
	stateNew     state = iota // it never waited, or has left
	stateWaiting              // in its flow
	stateGranted              // its lease is to be claimed
	stateEvicted              // put out, with err
)

// Ticket is one request at a queue. Its owner sets the exported fields before Enter and
// must not change them while it waits. It may enter again, for another attempt.
type Ticket struct {
	Request   *routing.Request
	Tried     []*routing.Worker // workers to pass over
	Class     int
	Tenant    string
	Weight    int       // the tenant's share inside its class; 0 is 1
	Tokens    int64     // of the prompt and the expected answer
	Expected  bool      // Request.OutputTokens is what the pool expects, at most MaxTokens, and follows it while the ticket waits
	MaxTokens int64     // that the answer may have; 0 is no bound
	Bytes     int64     // of the body
	Deadline  time.Time // zero: no deadline
	ID        string    // as List shows it
	Ref       any       // the owner's own

	// The rest is guarded by the queue's lock while the ticket waits, else its owner's.
	state           state
	seq             uint64        // the order of coming; 0 before the first
	entered         time.Time     // when it would have come if it had waited all the time
	waitingSince    time.Time     // when it came, the last time
	waited          time.Duration // waited up to the last grant
	counted         bool          // among those that had to wait, this time
	lease           routing.Lease
	err             error
	flow            *flow
	links           [lists]link
	path            [Classes - 1]step // how it was chosen, level by level
	promoted        bool
	charged         int64     // tokens on its flow's account; 0 when none are
	unroutableSince time.Time // since when nobody who is up could take it; zero while somebody could
	unroutableIndex int
	refusedBy       []*routing.Worker // by their breakers, of late
	refusedAt       time.Time
}

// began begins a wait. Earlier waits count; the time of attempts does not.
func (t *Ticket) startWait(now time.Time) { t.waitingSince, t.entered = now, now.Add(-t.waited) }

// Promoted reports whether a claimed ticket went as a higher class.
func (t *Ticket) Promoted() bool { return t.promoted }

// tokens is what max_tokens_inflight counts.
func (t *Ticket) tokens() int64 { return t.Request.PromptTokens + t.Request.OutputTokens }

func (t *Ticket) weight() float64 { return float64(max(1, t.Weight)) }

// cost is what a ticket counts in its tenant's share: at least one token.
func (t *Ticket) cost() float64 { return float64(max(1, t.Tokens)) }

// passedOver returns the workers that are not to be offered to the ticket.
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
