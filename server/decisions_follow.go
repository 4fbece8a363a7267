package server

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"tierway/decisions"
)

const (
	// followEvery is how often an operator is told what came: four times a second is
	// as often as a person sees a table change.
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

// follower tells one operator of records as server-sent events. It looks for them
// when it is asked: what comes costs nobody anything for its sake.
type follower struct {
	log     *decisionLog
	matches func(*decisions.Decision) bool
	event   func(numbered) any // what is told of a record

	next   int64                            // the number of the first record that was not looked at
	told   [time.Second/followEvery - 1]int // decisions, in the times before
	wrote  time.Time                        // when there was last something to tell
	resume bool                             // the first time tells what came meanwhile
}

// begin returns the events with which a stream begins; the place where it does is
// among them, so that who is cut off at once comes again to it. after is the number of the
// last record that the operator knows; 0: they want all that are kept; -1: none.
func (f *follower) begin(after int64, now time.Time) []byte {
	b := append(strconv.AppendInt([]byte("retry: "), reconnectAfter, 10), "\n\n"...)
	has := f.log.span()
	switch {
	case after < 0:
		f.next = has.next
	case after == 0:
		f.next, f.resume = has.oldest, true
	case after < has.first-1 || after >= has.next: // of another process
		f.next, f.resume = has.oldest, true
		b = appendEvent(b, "gap", has.oldest-1, gap{Missed: has.oldest - has.first, Restarted: true})
	default:
		f.next, f.resume = after+1, true
	}
	return f.flush(b, now)
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
func (f *follower) flush(b []byte, now time.Time) []byte {
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
			b = appendEvent(b, "dropped", found[most].seq, dropped{len(found) - most})
			found = found[:most]
		}
	} else {
		f.told[2] = min(most, len(found))
	}
	all := len(found)
	found = thinned(found, most)
	slices.Reverse(found)
	for _, n := range found {
		b = appendEvent(b, "decision", n.seq, f.event(n))
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
func (f *follower) look() (found []numbered, from, to int64) {
	to = f.log.span().next
	from = to
	f.log.newest(to, func(n numbered) bool {
		if n.seq < f.next {
			return false
		}
		from = n.seq
		if f.matches(n.d) {
			found = append(found, n)
		}
		return true
	})
	return found, from, to
}

// thinned returns at most so many of them, evenly spread, the first among them.
func thinned(all []numbered, most int) []numbered {
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
