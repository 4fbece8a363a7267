package decisions

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"
)

const (
	// followEvery is how often a stream is written. A person does not see more than four changes of
	// a table per second.
	followEvery = 250 * time.Millisecond
	// followMost bounds the decisions that a reader gets in any second. If there are more, an
	// evenly spread part is sent. A busy gateway therefore spends no more on a reader than a quiet
	// one.
	followMost = 50
	// resumeMost bounds the missed decisions that a returning reader gets at once: half a minute at
	// followMost, with room for the rows of a table.
	resumeMost = 1000
	// beatEvery is the time between two heartbeats. Common proxies close a connection after 30 s of
	// silence.
	beatEvery = 15 * time.Second
	// reconnectAfter is how long a browser waits before it reconnects, in milliseconds.
	reconnectAfter = 2000
)

// Follower sends new records and the events of other sources to one reader as server-sent events. It
// polls the log four times a second, so it costs requests nothing.
type Follower struct {
	Log     *Log // nil: no records
	Matches func(*Decision) bool
	Event   func(Entry) any // the event's content for a record
	// Others appends the encoded events of other sources that it has not appended before. They have no
	// id, so they do not change the position of the reader. nil: there are none.
	Others func([]byte) []byte

	next   int64                            // number of the first unread record
	sent   [time.Second/followEvery - 1]int // decisions sent in the previous intervals of this second
	wrote  time.Time                        // last time that a record, a count or a heartbeat was sent
	resume bool                             // the first interval sends missed records
}

// begin returns the first events of a stream. They include the stream's position, so that a reader
// that disconnects at once resumes there.
func (f *Follower) begin(after int64, now time.Time) []byte {
	b := append(strconv.AppendInt([]byte("retry: "), reconnectAfter, 10), "\n\n"...)
	if f.Log == nil {
		return f.flush(b, now)
	}
	span := f.Log.Span()
	switch {
	case after < 0:
		f.next = span.Next
	case after == 0:
		f.next, f.resume = span.Oldest, true
	case after < span.First-1 || after >= span.Next: // of another process
		f.next, f.resume = span.Oldest, true
		b = appendEvent(b, "gap", span.Oldest-1, gap{Missed: span.Oldest - span.First, Restarted: true})
	default:
		f.next, f.resume = after+1, true
	}
	return f.flush(b, now)
}

// Follow writes events four times a second until ctx ends, a write blocks for longer than stall, or
// may returns false. after is the number of the last record that the reader has. 0 sends all kept
// records first; -1 sends only new ones.
func (f *Follower) Follow(ctx context.Context, w io.Writer, control *http.ResponseController, stall time.Duration,
	after int64, may func() bool) {
	send := func(events []byte) bool {
		if len(events) == 0 {
			return true
		}
		control.SetWriteDeadline(time.Now().Add(stall)) // the write returns the error
		// The connection may serve another request. Over HTTP/2 a deadline ends a stream even if no
		// write is pending.
		defer control.SetWriteDeadline(time.Time{}) // the write returns the error
		if _, err := w.Write(events); err != nil {
			return false
		}
		return control.Flush() == nil
	}
	buffer := f.begin(after, time.Now())
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for send(buffer) {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !may() {
			return
		}
		buffer = f.flush(buffer[:0], time.Now())
	}
}

// gap is the number of records, matching or not, that the log evicted before the reader got them.
type gap struct {
	Missed int64 `json:"missed"`
	// the reader's last record is of an earlier process; later records of that process are not counted
	Restarted bool `json:"restarted,omitempty"`
}

// dropped is the number of matching records that are left out.
type dropped struct {
	Dropped int `json:"dropped"`
}

// flush appends the events since the last call; mostly none.
func (f *Follower) flush(b []byte, now time.Time) []byte {
	before := len(b)
	if f.Log != nil {
		b = f.appendRecords(b)
	}
	if len(b) == before && now.Sub(f.wrote) >= beatEvery {
		b = append(b, ": still here\n"...)
		if f.Log != nil {
			// an id without data is no event, but keeps the position while no record matches
			b = strconv.AppendInt(append(b, "id: "...), f.next-1, 10)
			b = append(b, '\n')
		}
		b = append(b, '\n')
	}
	if len(b) > before {
		f.wrote = now
	}
	if f.Others != nil {
		b = f.Others(b)
	}
	return b
}

// appendRecords appends the events of the log since the last call.
func (f *Follower) appendRecords(b []byte) []byte {
	found, from, to := f.readNew()
	if from > f.next {
		b = appendEvent(b, "gap", from-1, gap{Missed: from - f.next})
	}
	f.next = to
	limit := followMost - f.sent[0] - f.sent[1] - f.sent[2]
	copy(f.sent[:], f.sent[1:])
	if f.resume {
		limit, f.resume = resumeMost, false
		if len(found) > limit { // the newest, not an even part
			f.sent[2] = 0
			b = appendEvent(b, "dropped", found[limit].Seq, dropped{len(found) - limit})
			found = found[:limit]
		}
	} else {
		f.sent[2] = min(limit, len(found))
	}
	all := len(found)
	found = thinned(found, limit)
	slices.Reverse(found)
	for _, e := range found {
		b = appendEvent(b, "decision", e.Seq, f.Event(e))
	}
	if left := all - len(found); left > 0 {
		b = appendEvent(b, "dropped", to-1, dropped{left})
	}
	return b
}

// readNew returns the matching records, newest first, and the range of numbers that it read. from
// is above next if records were evicted unread.
func (f *Follower) readNew() (found []Entry, from, to int64) {
	to = f.Log.Span().Next
	from = to
	for e := range f.Log.newest(to) {
		if e.Seq < f.next {
			break
		}
		from = e.Seq
		if f.Matches(e.Decision) {
			found = append(found, e)
		}
	}
	return found, from, to
}

// thinned returns at most limit records, evenly spread, including the first.
func thinned(all []Entry, limit int) []Entry {
	if len(all) <= limit {
		return all
	}
	for i := range limit {
		all[i] = all[i*len(all)/limit]
	}
	return all[:limit]
}

// appendEvent appends one event with its number.
func appendEvent(b []byte, name string, seq int64, v any) []byte {
	data, err := json.Marshal(v)
	if err != nil { // a number that JSON cannot represent
		name, data = "dropped", []byte(`{"dropped":1}`)
	}
	b = append(strconv.AppendInt(append(b, "id: "...), seq, 10), '\n')
	return AppendEvent(b, name, data)
}

// AppendEvent appends a server-sent event without an id. data must be one line.
func AppendEvent(b []byte, name string, data []byte) []byte {
	b = append(append(b, "event: "...), name...)
	b = append(append(b, "\ndata: "...), data...)
	return append(b, "\n\n"...)
}
