package server

import (
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"tierway/decisions"
	"tierway/routing"
)

// decisionLog holds the records of the requests that ended last, each with a number
// that grows by one from request to request. Nothing is written and nobody is
// woken where a record comes in: who wants to see records looks for them. It is
// safe for concurrent use; the records in it are never changed.
type decisionLog struct {
	streams atomic.Int32 // of operators who follow
	exports atomic.Int32 // that are being read

	mu     sync.Mutex
	slots  []keptOne // record seq is at seq modulo their number
	first  int64     // the number of the first record of this process
	oldest int64     // the number of the oldest record that is kept
	next   int64     // the number of the record to come
	bytes  int64     // of all that are kept, about
}

// keptOne is one record with about how many bytes it holds.
type keptOne struct {
	d     *decisions.Decision
	bytes int64
}

// numbered is a record with its number.
type numbered struct {
	seq int64
	d   *decisions.Decision
}

// maxDecisionBytes bounds the memory of all records: as many as may be kept, of
// requests with a pool of sixteen workers and a short prompt, and a tenth of them
// where each has 128 candidates and a long one.
const maxDecisionBytes = 256 << 20

// numbersOfSecond are set aside for each second of a gateway's life, more than it
// can serve: so the numbers of a process are above those of the one before it, and
// who asks for what came after a number of an earlier process can be told so. All
// of them fit the 53 bits that JSON's readers keep.
const numbersOfSecond = 1_000_000

// newDecisions returns a log that keeps so many records; 0 keeps none.
func newDecisions(keep int) *decisionLog {
	l := &decisionLog{slots: make([]keptOne, keep), first: time.Now().Unix() * numbersOfSecond}
	l.oldest, l.next = l.first, l.first
	return l
}

// add takes a record over: nobody may change it afterwards.
func (l *decisionLog) add(d *decisions.Decision) {
	n := bytesOf(d)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.slots) == 0 {
		return
	}
	for l.next > l.oldest && (l.next-l.oldest == int64(len(l.slots)) || l.bytes+n > maxDecisionBytes) {
		l.dropLocked()
	}
	*l.slotLocked(l.next) = keptOne{d, n}
	l.next++
	l.bytes += n
}

func (l *decisionLog) slotLocked(seq int64) *keptOne { return &l.slots[seq%int64(len(l.slots))] }

// dropLocked forgets the oldest record.
func (l *decisionLog) dropLocked() {
	s := l.slotLocked(l.oldest)
	l.bytes -= s.bytes
	*s = keptOne{}
	l.oldest++
}

// resize keeps so many records from now on, of those that are there the newest.
func (l *decisionLog) resize(keep int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if keep == len(l.slots) {
		return
	}
	for l.next-l.oldest > int64(keep) {
		l.dropLocked()
	}
	slots := make([]keptOne, keep)
	for seq := l.oldest; seq < l.next; seq++ {
		slots[seq%int64(keep)] = *l.slotLocked(seq)
	}
	l.slots = slots
}

// span is what a log holds at one moment: the records from oldest up to and
// without next.
type span struct {
	first, oldest, next int64
	keep                int
	bytes               int64
}

// span returns what is kept now.
func (l *decisionLog) span() span {
	l.mu.Lock()
	defer l.mu.Unlock()
	return span{l.first, l.oldest, l.next, len(l.slots), l.bytes}
}

// lookAtOnce bounds how many records are copied under the lock: some 200 ns, in
// which a request that ends may wait.
const lookAtOnce = 128

// below appends to batch the newest records with numbers below before, the newest
// first, at most as many as are looked at at once. None: there are no older ones.
func (l *decisionLog) below(before int64, batch []numbered) []numbered {
	l.mu.Lock()
	defer l.mu.Unlock()
	for seq := min(before, l.next) - 1; seq >= l.oldest && len(batch) < lookAtOnce; seq-- {
		batch = append(batch, numbered{seq, l.slotLocked(seq).d})
	}
	return batch
}

// newest calls f for the records with numbers below before, the newest first,
// until it returns false. f may take its time: nobody waits for it.
func (l *decisionLog) newest(before int64, f func(numbered) bool) {
	batch := make([]numbered, 0, lookAtOnce)
	for {
		if batch = l.below(before, batch[:0]); len(batch) == 0 {
			return
		}
		for _, n := range batch {
			if !f(n) {
				return
			}
			before = n.seq
		}
	}
}

// page returns the newest records below a number that match, at most limit of
// them, the newest first; and whether there are more. A limit of 0 is none.
func (l *decisionLog) page(before int64, limit int, match func(*decisions.Decision) bool) (found []numbered, more bool) {
	l.newest(before, func(n numbered) bool {
		if !match(n.d) {
			return true
		}
		if limit > 0 && len(found) == limit {
			more = true
			return false
		}
		found = append(found, n)
		return true
	})
	return found, more
}

// get returns the newest record of a request id.
func (l *decisionLog) get(id string) (numbered, bool) {
	found, _ := l.page(maxSeq, 1, func(d *decisions.Decision) bool { return d.RequestID == id })
	if len(found) == 0 {
		return numbered{}, false
	}
	return found[0], true
}

// maxSeq is above every record's number.
const maxSeq = 1<<63 - 1

// last returns the newest n records, the oldest first; 0 for all.
func (l *decisionLog) last(n int) []*decisions.Decision {
	found, _ := l.page(maxSeq, n, func(*decisions.Decision) bool { return true })
	out := make([]*decisions.Decision, len(found))
	for i, f := range found {
		out[len(out)-1-i] = f.d
	}
	return out
}

// bytesOf returns about how many bytes a record holds. Names of tiers, workers and
// the like are the configuration's; what a client or a failure brings is counted.
func bytesOf(d *decisions.Decision) int64 {
	n := int(unsafe.Sizeof(*d)) + cap(d.Attempts)*int(unsafe.Sizeof(decisions.Attempt{})) + cap(d.Features.Chain)*int(unsafe.Sizeof(routing.Link{})) +
		len(d.RequestID) + len(d.TraceID) + len(d.RequestedModel) + len(d.RuleNote) + len(d.Cause)
	for i := range d.Attempts {
		a := &d.Attempts[i]
		n += len(a.Error) + bytesOfChoice(a.Choice)
	}
	return int64(n + bytesOfChoice(d.Refused))
}

func bytesOfChoice(c *routing.Choice) int {
	if c == nil {
		return 0
	}
	return int(unsafe.Sizeof(*c)) + cap(c.Candidates)*int(unsafe.Sizeof(routing.Candidate{}))
}
