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
	// followEvery is how often a stream is written: four times a second is as often
	// as a person sees a table change.
	followEvery = 250 * time.Millisecond
	// followMost bounds the decisions that an operator is told in any second; of more
	// they see a part, spread evenly. So a busy gateway spends as much on an operator
	// as a quiet one.
	followMost = 50
	// resumeMost bounds what an operator is told at once of what came while they were
	// away: half a minute at followMost, and what a table shows.
	resumeMost = 1000
	// beatEvery is how often a stream says that it lives: below the 30 s after which
	// common proxies let go.
	beatEvery = 15 * time.Second
	// reconnectAfter is what browsers are told to wait before they come again, in
	// milliseconds.
	reconnectAfter = 2000
)

// Follower writes new records as server-sent events for one reader. It polls the log
// four times a second, so it costs requests nothing.
type Follower struct {
	Log     *Log
	Matches func(*Decision) bool
	Event   func(Entry) any // what an event shows of a record

	next   int64                            // the number of the first record that was not looked at
	told   [time.Second/followEvery - 1]int // decisions, in the times before
	wrote  time.Time                        // when there was last something to tell
	resume bool                             // the first time tells what came meanwhile
}

// begin returns the events with which a stream begins. The stream's place is among
// them, so that a reader which is cut off at once resumes there.
func (f *Follower) begin(after int64, now time.Time) []byte {
	b := append(strconv.AppendInt([]byte("retry: "), reconnectAfter, 10), "\n\n"...)
	has := f.Log.Span()
	switch {
	case after < 0:
		f.next = has.Next
	case after == 0:
		f.next, f.resume = has.Oldest, true
	case after < has.First-1 || after >= has.Next: // of another process
		f.next, f.resume = has.Oldest, true
		b = appendEvent(b, "gap", has.Oldest-1, gap{Missed: has.Oldest - has.First, Restarted: true})
	default:
		f.next, f.resume = after+1, true
	}
	return f.flush(b, now)
}

// Follow writes events four times a second until ctx ends, the reader takes nothing
// for as long as stall, or may returns false. after is the number of the last record
// that the reader has; 0: all that are kept follow; -1: only new ones.
func (f *Follower) Follow(ctx context.Context, w io.Writer, control *http.ResponseController, stall time.Duration,
	after int64, may func() bool) {
	send := func(events []byte) bool {
		if len(events) == 0 {
			return true
		}
		control.SetWriteDeadline(time.Now().Add(stall)) //nolint:errcheck // the write tells
		// The connection may serve another request, and over HTTP/2 a deadline ends a
		// stream even if no write is pending.
		defer control.SetWriteDeadline(time.Time{}) //nolint:errcheck // the write tells
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

// gap tells how many records came and went unseen, whether they match or not.
type gap struct {
	Missed    int64 `json:"missed"`
	Restarted bool  `json:"restarted,omitempty"` // the operator's last one is of another process; what that one had since is not counted
}

// dropped tells how many matching records are left out.
type dropped struct {
	Dropped int `json:"dropped"`
}

// flush appends the events of what came since the last time; none most of the time.
func (f *Follower) flush(b []byte, now time.Time) []byte {
	before := len(b)
	found, from, to := f.look()
	if from > f.next {
		b = appendEvent(b, "gap", from-1, gap{Missed: from - f.next})
	}
	f.next = to
	most := followMost - f.told[0] - f.told[1] - f.told[2]
	copy(f.told[:], f.told[1:])
	if f.resume {
		most, f.resume = resumeMost, false
		if len(found) > most { // the newest, not some of all
			f.told[2] = 0
			b = appendEvent(b, "dropped", found[most].Seq, dropped{len(found) - most})
			found = found[:most]
		}
	} else {
		f.told[2] = min(most, len(found))
	}
	all := len(found)
	found = thinned(found, most)
	slices.Reverse(found)
	for _, e := range found {
		b = appendEvent(b, "decision", e.Seq, f.Event(e))
	}
	if left := all - len(found); left > 0 {
		b = appendEvent(b, "dropped", to-1, dropped{left})
	}
	if len(b) == before && now.Sub(f.wrote) >= beatEvery {
		b = append(b, ": still here\nid: "...) // an id alone is no event: it keeps the place of who waits for what is rare
		b = append(strconv.AppendInt(b, to-1, 10), "\n\n"...)
	}
	if len(b) > before {
		f.wrote = now
	}
	return b
}

// look returns the records that match, the newest first, of those from and up to
// two numbers. from is above next where records went unseen.
func (f *Follower) look() (found []Entry, from, to int64) {
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

// thinned returns at most so many of them, evenly spread, the first among them.
func thinned(all []Entry, most int) []Entry {
	if len(all) <= most {
		return all
	}
	for i := range most {
		all[i] = all[i*len(all)/most]
	}
	return all[:most]
}

// appendEvent appends one event with its number.
func appendEvent(b []byte, name string, seq int64, v any) []byte {
	data, err := json.Marshal(v)
	if err != nil { // a number that JSON has not
		name, data = "dropped", []byte(`{"dropped":1}`)
	}
	b = append(strconv.AppendInt(append(b, "id: "...), seq, 10), "\nevent: "...)
	b = append(append(append(b, name...), "\ndata: "...), data...)
	return append(b, "\n\n"...)
}
