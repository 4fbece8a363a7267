package decisions

import (
	"iter"
	"math"
	"sync"
	"time"
	"unsafe"

	"tierway/routing"
)

// Log keeps the records of the requests that ended last, each with a number that
// grows by one from request to request. Readers poll; adding a record wakes no
// reader. It is safe for concurrent use; the records in it are never changed.
type Log struct {
	mu    sync.Mutex
	slots []slot // record seq is at seq modulo their number
	span  Span
}

// slot is one record with about how many bytes it holds.
type slot struct {
	d     *Decision
	bytes int64
}

// Entry is a record with its number.
type Entry struct {
	Seq      int64
	Decision *Decision
}

// maxDecisionBytes bounds the memory of all records: as many as may be kept, of
// requests with a pool of sixteen workers and a short prompt, and a tenth of them
// where each has 128 candidates and a long one.
const maxDecisionBytes = 256 << 20

// numbersOfSecond are reserved for each second of a gateway's life, more than it can
// serve. So the numbers of a process are above those of the process before it, and a
// follower's place in an earlier process is recognised. All of them fit the 53 bits
// that JSON's readers keep.
const numbersOfSecond = 1_000_000

// NewLog returns a log that keeps so many records; 0 keeps none.
func NewLog(keep int) *Log {
	first := time.Now().Unix() * numbersOfSecond
	return &Log{slots: make([]slot, keep), span: Span{First: first, Oldest: first, Next: first, Keep: keep}}
}

// Add takes a record over: the caller must not change it afterwards.
func (l *Log) Add(d *Decision) {
	n := bytesOf(d)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.slots) == 0 {
		return
	}
	for l.span.Next > l.span.Oldest && (l.span.Next-l.span.Oldest == int64(len(l.slots)) || l.span.Bytes+n > maxDecisionBytes) {
		l.dropLocked()
	}
	*l.slotLocked(l.span.Next) = slot{d, n}
	l.span.Next++
	l.span.Bytes += n
}

func (l *Log) slotLocked(seq int64) *slot { return &l.slots[seq%int64(len(l.slots))] }

// dropLocked forgets the oldest record.
func (l *Log) dropLocked() {
	s := l.slotLocked(l.span.Oldest)
	l.span.Bytes -= s.bytes
	*s = slot{}
	l.span.Oldest++
}

// Resize keeps so many records from now on, of those that are there the newest.
func (l *Log) Resize(keep int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if keep == len(l.slots) {
		return
	}
	for l.span.Next-l.span.Oldest > int64(keep) {
		l.dropLocked()
	}
	slots := make([]slot, keep)
	for seq := l.span.Oldest; seq < l.span.Next; seq++ {
		slots[seq%int64(keep)] = *l.slotLocked(seq)
	}
	l.slots, l.span.Keep = slots, keep
}

// Span is what a log holds at one moment: the records from Oldest up to and without
// Next.
type Span struct {
	First  int64 // the number of the first record of this process
	Oldest int64
	Next   int64
	Keep   int   // the bound of the records
	Bytes  int64 // of all that are kept, about
}

// Span returns what is kept now.
func (l *Log) Span() Span {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.span
}

// lookAtOnce bounds how many records are copied under the lock: some 200 ns, in
// which a request that ends may wait.
const lookAtOnce = 128

// newest yields the records with numbers below before, the newest first. The log is
// not locked meanwhile.
func (l *Log) newest(before int64) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		batch := make([]Entry, 0, lookAtOnce)
		for {
			batch = batch[:0]
			l.mu.Lock()
			for seq := min(before, l.span.Next) - 1; seq >= l.span.Oldest && len(batch) < lookAtOnce; seq-- {
				batch = append(batch, Entry{seq, l.slotLocked(seq).d})
			}
			l.mu.Unlock()
			for _, e := range batch {
				if before = e.Seq; !yield(e) {
					return
				}
			}
			if len(batch) == 0 {
				return
			}
		}
	}
}

// Page returns the newest records with numbers below before that match, at most limit
// of them, the newest first; and whether there are more. 0 bounds neither.
func (l *Log) Page(before int64, limit int, match func(*Decision) bool) (found []Entry, more bool) {
	if before == 0 {
		before = math.MaxInt64
	}
	for e := range l.newest(before) {
		switch {
		case !match(e.Decision):
		case limit > 0 && len(found) == limit:
			return found, true
		default:
			found = append(found, e)
		}
	}
	return found, false
}

// Get returns the newest record of a request id.
func (l *Log) Get(id string) (Entry, bool) {
	found, _ := l.Page(0, 1, func(d *Decision) bool { return d.RequestID == id })
	if len(found) == 0 {
		return Entry{}, false
	}
	return found[0], true
}

// Last returns the newest n records, the oldest first; 0 for all.
func (l *Log) Last(n int) []*Decision {
	found, _ := l.Page(0, n, func(*Decision) bool { return true })
	out := make([]*Decision, len(found))
	for i, f := range found {
		out[len(out)-1-i] = f.Decision
	}
	return out
}

// bytesOf returns about how many bytes a record holds. Names of tiers, workers and
// the like are the configuration's; what a client or a failure brings is counted.
func bytesOf(d *Decision) int64 {
	n := int(unsafe.Sizeof(*d)) + cap(d.Attempts)*int(unsafe.Sizeof(Attempt{})) + cap(d.Features.Chain)*int(unsafe.Sizeof(routing.Link{})) +
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
