package decisions

import (
	"iter"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"tierway/routing"
	"tierway/tiers"
)

// Log keeps the records of the requests that ended last. Each has a number that grows by one.
// Readers poll; adding a record wakes no reader. It is safe for concurrent use. The kept records
// are never changed.
type Log struct {
	mu    sync.Mutex
	slots []slot // record seq is at index seq modulo the length
	span  Span
}

// slot is one record with its approximate size in bytes.
type slot struct {
	d     *Decision
	bytes int64
}

// Entry is a record with its number.
type Entry struct {
	Seq      int64
	Decision *Decision
}

// maxDecisionBytes bounds the memory of all records. It holds the maximum number of records with a
// pool of 16 workers and a short prompt, or a tenth of them with 128 candidates and a long prompt.
const maxDecisionBytes = 256 << 20

// numbersPerSecond is how many numbers are reserved for each second of wall-clock time, more than a
// gateway can use. The numbers of a process are therefore above those of the previous process, and
// a position in an earlier process is recognised. All numbers fit in the 53 bits that JSON readers
// keep.
const numbersPerSecond = 1_000_000

// NewLog returns a log that keeps the given number of records; 0 keeps none.
func NewLog(keep int) *Log {
	first := time.Now().Unix() * numbersPerSecond
	return &Log{slots: make([]slot, keep), span: Span{First: first, Oldest: first, Next: first, Keep: keep}}
}

// Add adds a record. The caller must not change it afterwards.
func (l *Log) Add(d *Decision) {
	n := bytesOf(d)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.slots) == 0 {
		return
	}
	for l.span.Next > l.span.Oldest && (l.span.Next-l.span.Oldest == int64(len(l.slots)) ||
		l.span.Bytes+n > maxDecisionBytes) {
		l.dropLocked()
	}
	*l.slotLocked(l.span.Next) = slot{d, n}
	l.span.Next++
	l.span.Bytes += n
}

func (l *Log) slotLocked(seq int64) *slot { return &l.slots[seq%int64(len(l.slots))] }

// dropLocked removes the oldest record. The caller must hold mu.
func (l *Log) dropLocked() {
	s := l.slotLocked(l.span.Oldest)
	l.span.Bytes -= s.bytes
	*s = slot{}
	l.span.Oldest++
}

// Resize changes the number of kept records. The newest ones stay.
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

// Span is the range of records in a log: from Oldest up to, but not including, Next.
type Span struct {
	First  int64 // number of the first record of this process
	Oldest int64
	Next   int64
	Keep   int   // maximum number of records
	Bytes  int64 // approximate size of all records
}

// Span returns the current range.
func (l *Log) Span() Span {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.span
}

// copyAtOnce bounds how many records are copied under the lock: some 200 ns, for which Add may
// wait.
const copyAtOnce = 128

// newest yields the records with numbers below before, newest first. The log is not locked while
// yield runs.
func (l *Log) newest(before int64) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		batch := make([]Entry, 0, copyAtOnce)
		for {
			batch = batch[:0]
			l.mu.Lock()
			for seq := min(before, l.span.Next) - 1; seq >= l.span.Oldest && len(batch) < copyAtOnce; seq-- {
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

// Page returns the newest matching records with numbers below before, newest first, at most limit
// of them. more reports whether there are further ones. 0 means no bound, for before and for limit.
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

// Get returns the newest record with the given request id.
func (l *Log) Get(id string) (Entry, bool) {
	found, _ := l.Page(0, 1, func(d *Decision) bool { return d.RequestID == id })
	if len(found) == 0 {
		return Entry{}, false
	}
	return found[0], true
}

// Last returns the newest n records, oldest first; 0 returns all.
func (l *Log) Last(n int) []*Decision {
	found, _ := l.Page(0, n, func(*Decision) bool { return true })
	out := make([]*Decision, len(found))
	for i, f := range found {
		out[len(out)-1-i] = f.Decision
	}
	return out
}

// bytesOf returns the approximate size of a record. Names of tiers, workers and the like belong to
// the configuration and do not count; texts from clients and failures do.
func bytesOf(d *Decision) int64 {
	n := int(unsafe.Sizeof(*d)) + cap(d.Attempts)*int(unsafe.Sizeof(Attempt{})) +
		cap(d.Passed)*int(unsafe.Sizeof(tiers.Move{})) +
		cap(d.Features.Chain)*int(unsafe.Sizeof(routing.Link{})) +
		len(d.RequestID) + len(d.KeyHint) + len(d.ClientIP) + len(d.TraceID) + len(d.RequestedModel) +
		len(d.RuleNote) + len(d.Cause)
	if s := d.Features.ModelScore; s != nil {
		n += int(unsafe.Sizeof(*s))
	}
	if s := d.Features.Score; s != nil {
		n += int(unsafe.Sizeof(*s)) + cap(s.Thresholds)*int(unsafe.Sizeof(tiers.TierScore{}))
	}
	for i := range d.Attempts {
		a := &d.Attempts[i]
		n += len(a.Error) + bytesOfChoice(a.Choice)
		if h := a.Handover; h != nil {
			n += int(unsafe.Sizeof(*h)) + cap(h.Prefills)*int(unsafe.Sizeof(Prefill{}))
			for j := range h.Prefills {
				n += len(h.Prefills[j].Error) + bytesOfChoice(h.Prefills[j].Choice)
			}
		}
	}
	return int64(n + bytesOfChoice(d.Refused))
}

func bytesOfChoice(c *routing.Choice) int {
	if c == nil {
		return 0
	}
	n := int(unsafe.Sizeof(*c)) + cap(c.Candidates)*int(unsafe.Sizeof(routing.Candidate{}))
	if h := c.Handover; h != nil {
		n += int(unsafe.Sizeof(*h)) + bytesOfChoice(h.Prefill)
	}
	return n
}

// Filter selects records. A record matches if it meets every condition that is set. The tags
// describe the filter as query and body of the admin API.
type Filter struct {
	Since     time.Time `query:"since" json:"since,omitzero" doc:"RFC 3339; requests that arrived at this time or later."`
	Until     time.Time `query:"until" json:"until,omitzero" doc:"RFC 3339; requests that arrived before this time."`
	Tenant    string    `query:"tenant" json:"tenant,omitempty" maxLength:"63"`
	Tier      string    `query:"tier" json:"tier,omitempty" maxLength:"200" doc:"The tier or pool."`
	Worker    string    `query:"worker" json:"worker,omitempty" maxLength:"200" doc:"Worker of any attempt, or one that computed its prompt."`
	Outcome   string    `query:"outcome" json:"outcome,omitempty" enum:"ok,refused,failed,truncated,client_gone"`
	Reason    string    `query:"reason" json:"reason,omitempty" pattern:"^[a-z0-9_]{1,100}$" doc:"Reason for the worker of any attempt."`
	Rule      string    `query:"rule" json:"rule,omitempty" maxLength:"100" doc:"Rule that selected the tier."`
	Model     string    `query:"model" json:"model,omitempty" maxLength:"300" doc:"Model name as requested, or as sent to the worker."`
	Class     string    `query:"class" json:"class,omitempty" enum:"interactive,background,batch"`
	Code      string    `query:"code" json:"code,omitempty" pattern:"^[a-z0-9_]{1,100}$" doc:"Code of the returned error."`
	Status    int       `query:"status" json:"status,omitempty" minimum:"100" maximum:"599" doc:"Status as sent; 499 if the client left before any."`
	MinMs     float64   `query:"min_ms" json:"min_ms,omitempty" minimum:"0" doc:"Minimum duration in milliseconds."`
	RequestID string    `query:"request_id" json:"request_id,omitempty" maxLength:"128"`
	Search    string    `query:"q" json:"q,omitempty" maxLength:"100" doc:"Part of the request id, tenant, key, address, model, tier, worker or code; case is ignored."`
}

// Matches reports whether the filter selects a record.
func (f *Filter) Matches(d *Decision) bool {
	same := func(want, have string) bool { return want == "" || want == have }
	return same(f.Tenant, d.Tenant) && same(f.Tier, d.Tier) && same(f.Outcome, string(d.Result)) && same(f.Rule, d.Rule) &&
		same(f.Class, d.Class) && same(f.Code, d.Code) && same(f.RequestID, d.RequestID) &&
		(f.Model == "" || f.Model == d.Model || f.Model == d.RequestedModel) &&
		(f.Status == 0 || f.Status == d.Status) && d.DurationMs >= f.MinMs &&
		!d.Time.Before(f.Since) && (f.Until.IsZero() || d.Time.Before(f.Until)) &&
		f.matchesAttempt(d) && f.matchesSearch(d)
}

func (f *Filter) matchesAttempt(d *Decision) bool {
	if f.Worker == "" && f.Reason == "" {
		return true
	}
	if len(d.Attempts) == 0 {
		return (f.Worker == "" || f.Worker == d.Worker) && (f.Reason == "" || f.Reason == d.Reason)
	}
	return slices.ContainsFunc(d.Attempts, func(a Attempt) bool {
		return (f.Worker == "" || f.Worker == a.Worker || a.Handover.uses(f.Worker)) &&
			(f.Reason == "" || f.Reason == a.Reason)
	})
}

// matchesSearch reports whether a searched field contains the search text.
func (f *Filter) matchesSearch(d *Decision) bool {
	if f.Search == "" {
		return true
	}
	has := func(text string) bool { return containsFold(text, f.Search) }
	return has(d.RequestID) || has(d.Tenant) || has(d.Key) || has(d.KeyHint) || has(d.ClientIP) || has(d.Model) ||
		has(d.RequestedModel) || has(d.Tier) || has(d.Worker) || has(d.Code) ||
		slices.ContainsFunc(d.Attempts, func(a Attempt) bool { return has(a.Worker) })
}

// containsFold reports whether text contains part, ignoring case. It does not allocate, because a
// search reads up to a hundred thousand records.
func containsFold(text, part string) bool {
	for i := 0; i+len(part) <= len(text); i++ {
		if strings.EqualFold(text[i:i+len(part)], part) {
			return true
		}
	}
	return false
}
