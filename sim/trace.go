package sim

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
func (t Trace) Start(w *World, _ *RNG) {
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

// MooncakeTokens is the tokens of a block in the traces that Mooncake has published.
const MooncakeTokens = 512

// Bounds of one recorded request, which keep a damaged file from using all memory.
const (
	maxTraceLine   = 4 << 20 // bytes
	maxTraceTokens = 1 << 24
)

// ReadMooncake reads a trace in the format of Mooncake (FAST '25): JSON lines with timestamp
// (milliseconds), input_length and output_length (tokens), and hash_ids, one for each block of the
// prompt. It reads at most that many requests; 0 is all. Their chains have blocks of blockTokens
// tokens, and answers are not part of them.
func ReadMooncake(in io.Reader, blockTokens int64, most int) ([]Arrival, error) {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxTraceLine)
	var all []Arrival
	number := 0
	for (most == 0 || len(all) < most) && lines.Scan() {
		number++
		if len(lines.Bytes()) == 0 {
			continue
		}
		var l traceLine
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("line %d of the trace is not a JSON object of numbers: %w", number, err)
		}
		if err := l.check(blockTokens); err != nil {
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
	Timestamp float64  `json:"timestamp"`
	Input     int64    `json:"input_length"`
	Output    int64    `json:"output_length"`
	HashIDs   []uint64 `json:"hash_ids"`
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
		return fmt.Errorf("hash_ids has %d blocks, and input_length %d has only %d of %d tokens", len(l.HashIDs), l.Input,
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
