package sim

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"tierway/routing"
)

// Arrival is one request of a trace.
type Arrival struct {
	At      time.Duration // since the start of the trace
	Request Request
}

// Trace sends recorded requests at their recorded times, in the given order.
type Trace struct {
	Arrivals []Arrival
	Rate     float64 // factor of the recorded rate; 0: 1
}

// Start plans the first request; each plans the next.
func (t Trace) Start(w *Simulation, _ *RNG) {
	if t.Rate == 0 {
		t.Rate = 1
	}
	next := 0
	var arrive func()
	plan := func() {
		if next < len(t.Arrivals) {
			w.At(time.Duration(float64(t.Arrivals[next].At)/t.Rate), arrive)
		}
	}
	arrive = func() {
		r := t.Arrivals[next].Request
		next++
		plan()
		w.Submit(r)
	}
	plan()
}

// Spread delays each request by a random time below that interval, and sorts the requests by their new times. It
// restores the gaps between the requests of a trace with rounded times.
func Spread(arrivals []Arrival, over time.Duration) {
	for i := range arrivals {
		arrivals[i].At += time.Duration(routing.Unit(routing.Draw(uint64(i))) * float64(over))
	}
	slices.SortStableFunc(arrivals, func(a, b Arrival) int { return cmp.Compare(a.At, b.At) })
}

// MooncakeTokens is the number of tokens of a block in Mooncake's published traces.
const MooncakeTokens = 512

// Bounds of one recorded request, so that a damaged file cannot use all memory.
const (
	maxTraceLine   = 4 << 20 // bytes
	maxTraceTokens = 1 << 24
)

// ReadMooncake reads a trace in the format of Mooncake (FAST '25): JSON lines with timestamp
// (milliseconds), input_length and output_length (tokens), and hash_ids, one for each block of the
// prompt. It reads at most that many requests; 0 is all. Their chains have blocks of blockTokens
// tokens, and answers are not part of them.
func ReadMooncake(in io.Reader, blockTokens int64, maxArrivals int) ([]Arrival, error) {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxTraceLine)
	var all []Arrival
	number := 0
	for (maxArrivals == 0 || len(all) < maxArrivals) && lines.Scan() {
		number++
		if len(lines.Bytes()) == 0 {
			continue
		}
		l, err := parseTraceLine(lines.Bytes())
		if err == nil {
			err = l.check(blockTokens)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d of the trace: %w", number, err)
		}
		a := l.arrival(blockTokens)
		if len(all) > 0 && a.At < all[len(all)-1].At {
			return nil, fmt.Errorf("line %d of the trace: timestamp %v is before the line above: sort the lines by timestamp",
				number, l.Timestamp)
		}
		all = append(all, a)
	}
	if err := lines.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			return nil, fmt.Errorf("line %d of the trace is longer than %d bytes: write one JSON object per line", number+1,
				maxTraceLine)
		}
		return nil, fmt.Errorf("reading the trace: %w", err)
	}
	if len(all) == 0 {
		return nil, errors.New("the trace has no request: write one JSON object per line")
	}
	first := all[0].At
	for i := range all {
		all[i].At -= first
	}
	return all, nil
}

// traceLine is one line of a trace.
type traceLine struct {
	Timestamp float64
	Input     int64
	Output    int64
	HashIDs   []uint64
}

// parseTraceLine reads a JSON object. All fields of a traceLine must be there.
func parseTraceLine(text []byte) (l traceLine, err error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil || fields == nil {
		return l, errors.New("it is not a JSON object: write one JSON object per line")
	}
	for _, f := range []struct {
		name, want string
		to         any
	}{
		{"timestamp", "a number", &l.Timestamp},
		{"input_length", "an integer", &l.Input},
		{"output_length", "an integer", &l.Output},
		{"hash_ids", "a list of integers from 0 on", &l.HashIDs},
	} {
		raw := fields[f.name]
		if len(raw) == 0 || string(raw) == "null" {
			return l, fmt.Errorf("%s is missing: write %s", f.name, f.want)
		}
		if json.Unmarshal(raw, f.to) != nil {
			if raw[0] == '"' {
				f.want += " without quotes"
			}
			const maxShown = 40 // bytes of a wrong value in the message
			return l, fmt.Errorf("%s is %.*s: write %s", f.name, maxShown, raw, f.want)
		}
	}
	return l, nil
}

func (l *traceLine) check(blockTokens int64) error {
	const century = 100 * 365 * 24 * 3600 * 1e3
	switch blocks := (l.Input + blockTokens - 1) / blockTokens; {
	case l.Timestamp < 0 || l.Timestamp > century:
		return fmt.Errorf("timestamp is %v: write the milliseconds since the start", l.Timestamp)
	case l.Input < 1 || l.Input > maxTraceTokens:
		return fmt.Errorf("input_length is %d: write an integer from 1 to %d", l.Input, maxTraceTokens)
	case l.Output < 0 || l.Output > maxTraceTokens:
		return fmt.Errorf("output_length is %d: write an integer from 0 to %d", l.Output, maxTraceTokens)
	case int64(len(l.HashIDs)) > blocks:
		return fmt.Errorf("hash_ids has %d blocks, and input_length %d fills only %d blocks of %d tokens: "+
			"set --block-tokens to the block size of the trace", len(l.HashIDs), l.Input,
			blocks, blockTokens)
	}
	return nil
}

func (l *traceLine) arrival(blockTokens int64) Arrival {
	r := Request{Kind: "trace", PromptTokens: l.Input, OutputTokens: max(1, l.Output)}
	r.Chain = make([]routing.Block, len(l.HashIDs))
	last := routing.Block{}
	for i, id := range l.HashIDs {
		last.Hash = routing.Draw(last.Hash ^ routing.Draw(id+1))
		last.End = min(int64(i+1)*blockTokens, l.Input) * charactersAToken
		r.Chain[i] = last
	}
	if len(r.Chain) > 0 {
		r.Prefix = r.Chain[min(1, len(r.Chain)-1)].Hash // after a system prompt that all requests share
	}
	r.Bytes = l.Input * charactersAToken
	return Arrival{At: time.Duration(l.Timestamp * float64(time.Millisecond)), Request: r}
}
