package proxy

import (
	"sync"
	"time"
)

// inflightRequests knows the requests in flight, for the age of the oldest. Each of its shards is
// a list, so that a request locks one of them for a few instructions at its begin and at
// its end, and does not meet the others there. It is safe for concurrent use.
type inflightRequests struct{ shards [16]inflightShard }

// inflightShard is a list in the order in which the requests began.
type inflightShard struct {
	mu          sync.Mutex
	first, last *exchange
	_           [40]byte // a cache line of its own
}

// shardOf spreads requests by the time at which they began.
func (f *inflightRequests) shardOf(x *exchange) *inflightShard {
	return &f.shards[x.in.Start.UnixNano()>>4%int64(len(f.shards))] // clocks may lack the last bits
}

// add adds a request, which must be removed once.
func (f *inflightRequests) add(x *exchange) {
	l := f.shardOf(x)
	l.mu.Lock()
	defer l.mu.Unlock()
	if x.before = l.last; x.before == nil {
		l.first = x
	} else {
		x.before.after = x
	}
	l.last = x
}

// remove removes a request that was added.
func (f *inflightRequests) remove(x *exchange) {
	l := f.shardOf(x)
	l.mu.Lock()
	defer l.mu.Unlock()
	if x.before == nil {
		l.first = x.after
	} else {
		x.before.after = x.after
	}
	if x.after == nil {
		l.last = x.before
	} else {
		x.after.before = x.before
	}
	x.before, x.after = nil, nil
}

// oldest returns the age of the oldest request; 0 without any.
func (f *inflightRequests) oldest() (age time.Duration) {
	for i := range f.shards {
		l := &f.shards[i]
		l.mu.Lock()
		if l.first != nil {
			age = max(age, time.Since(l.first.in.Start))
		}
		l.mu.Unlock()
	}
	return age
}
