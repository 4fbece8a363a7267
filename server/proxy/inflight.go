package proxy

import (
	"sync"
	"time"
)

// inflightRequests contains the requests in flight, to find the age of the oldest. It is sharded, because
// every request locks a shard at its start and at its end. It is safe for concurrent use.
type inflightRequests struct{ shards [16]inflightShard }

// inflightShard is a linked list of requests in the order of their start.
type inflightShard struct {
	mu          sync.Mutex
	first, last *exchange
	_           [40]byte // fills the cache line, so that shards share none
}

// shardOf returns the shard of a request, which its start time selects.
func (f *inflightRequests) shardOf(x *exchange) *inflightShard {
	return &f.shards[x.in.Start.UnixNano()>>4%int64(len(f.shards))] // some clocks do not set the last bits
}

// add adds a request. The caller must remove it exactly once.
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

// attempts returns the attempts in progress. Those that end meanwhile may be among them.
func (f *inflightRequests) attempts() (all []*attempt) {
	for i := range f.shards {
		l := &f.shards[i]
		l.mu.Lock()
		for x := l.first; x != nil; x = x.after {
			if a := x.current.Load(); a != nil {
				all = append(all, a)
			}
		}
		l.mu.Unlock()
	}
	return all
}

// oldest returns the age of the oldest request, or 0 without requests.
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
