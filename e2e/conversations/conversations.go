// Package conversations reads or generates conversations for loads, and writes their requests.
package conversations

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tierway/routing"
)

// BlockTokens is the number of tokens of a hash id.
const BlockTokens = 512

const tokenBytes = 4 // of the engines' tokenizer

// Recorded is one line of a trace in Mooncake's format.
type Recorded struct {
	Timestamp float64  `json:"timestamp"` // milliseconds
	Input     int      `json:"input_length"`
	Output    int      `json:"output_length"`
	HashIDs   []uint64 `json:"hash_ids"` // one for each 512 tokens of the prompt
}

// Chat is one request of a trace.
type Chat struct {
	Recorded
	Number int
	At     time.Duration // since the first request of the trace
	Ends   []int         // where each message ends, in tokens
	Shared bool          // other prompts begin with the same first message
	begins map[uint64]part
}

// part is the beginning of a block that is the text of another block.
type part struct {
	of     uint64
	tokens int
}

// Read returns the first requests of the file that TIERWAY_TRACE names, or else generated ones.
func Read(t *testing.T, limit int) []*Chat {
	t.Helper()
	name := os.Getenv("TIERWAY_TRACE")
	if name == "" {
		t.Log("the conversations are generated; TIERWAY_TRACE names a recorded trace")
		return New(Generate(1, limit))
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatalf("TIERWAY_TRACE: %v", err)
	}
	defer f.Close()
	var all []Recorded
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for len(all) < limit && lines.Scan() {
		var r Recorded
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, r)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return New(all)
}

// Generate generates conversations of several turns, behind a few system prompts: about 3.3 requests per
// second, with prompts of about 8,000 tokens.
func Generate(seed uint64, requests int) (all []Recorded) {
	rng := routing.Draw(seed)
	draw := func(from, to int) int {
		rng = routing.Draw(rng + 1)
		return from + int(rng%uint64(to-from+1))
	}
	next := uint64(0)
	grow := func(chain []uint64, blocks int) []uint64 {
		chain = slices.Clip(chain)
		for range blocks {
			next++
			chain = append(chain, next)
		}
		return chain
	}
	var systems [6][]uint64
	for i := range systems {
		systems[i] = grow(nil, draw(1, 4))
	}
	for start := 0.0; len(all) < 2*requests; start += float64(draw(0, 2000)) {
		chain, at := systems[draw(0, len(systems)-1)], start
		for range draw(1, 6) {
			chain = grow(chain, draw(1, 10))
			output := draw(20, 600)
			all = append(all, Recorded{at, len(chain) * BlockTokens, output, chain})
			at += float64(5000 + 30*output + draw(0, 20_000))
		}
	}
	slices.SortStableFunc(all, func(a, b Recorded) int { return cmp.Compare(a.Timestamp, b.Timestamp) })
	return all[:requests]
}

// endOfPrompt stands for the block behind the last one of a prompt.
const endOfPrompt = ^uint64(0)

// New splits the prompts into messages. A message ends where prompts with a common beginning differ,
// such as after a system prompt, and where an earlier turn of the conversation ended. A trace has one hash
// for the last block of a turn, and another for the same block of the next turn, which is longer. The text
// of the longer block begins with that of the shorter one.
func New(all []Recorded) []*Chat {
	next, lasts := map[uint64][]uint64{}, map[uint64]int{} // lasts: tokens of blocks that end a prompt
	for _, r := range all {
		for i, id := range r.HashIDs {
			follows := endOfPrompt
			if i+1 < len(r.HashIDs) {
				follows = r.HashIDs[i+1]
			} else {
				lasts[id] = r.Input - i*BlockTokens
			}
			if !slices.Contains(next[id], follows) {
				next[id] = append(next[id], follows)
			}
		}
	}
	begins := map[uint64]part{}
	for id, follow := range next {
		if a, b, ok := turns(follow, lasts); ok {
			begins[b], next[id] = part{a, lasts[a]}, nil
		}
	}
	chats := make([]*Chat, len(all))
	for n, r := range all {
		c := &Chat{Recorded: r, Number: n, begins: begins,
			At: time.Duration((r.Timestamp - all[0].Timestamp) * float64(time.Millisecond))}
		for i, id := range r.HashIDs {
			if p, ok := begins[id]; ok && i*BlockTokens+p.tokens < r.Input {
				c.Ends = append(c.Ends, i*BlockTokens+p.tokens)
			}
			if len(next[id]) > 1 && (i+1)*BlockTokens < r.Input {
				c.Ends = append(c.Ends, (i+1)*BlockTokens)
				c.Shared = c.Shared || len(c.Ends) == 1
			}
		}
		c.Ends = append(c.Ends, r.Input)
		chats[n] = c
	}
	return chats
}

// turns reports whether the two blocks that follow a block are a, which ends a turn, and b, the longer block
// of the next turn.
func turns(follow []uint64, lasts map[uint64]int) (a, b uint64, ok bool) {
	if len(follow) != 2 || follow[0] == endOfPrompt || follow[1] == endOfPrompt {
		return 0, 0, false
	}
	length := func(id uint64) int { return cmp.Or(lasts[id], BlockTokens) }
	if a, b = follow[0], follow[1]; length(a) > length(b) {
		a, b = b, a
	}
	return a, b, length(a) < length(b)
}

// Body returns the request. Its seed is its number, by which an engine finds the length of the answer.
func (c *Chat) Body() []byte {
	var b strings.Builder
	b.Grow(c.Input*tokenBytes + 1024)
	fmt.Fprintf(&b, `{"seed":%d,"model":"sim","stream":true,"stream_options":{"include_usage":true},"messages":[`, c.Number)
	for i, begin := 0, 0; i < len(c.Ends); i++ {
		role := "user"
		if i == 0 && c.Shared {
			role = "system"
		}
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"role":%q,"content":"`, role)
		for ; begin < c.Ends[i]; begin++ {
			c.writeToken(&b, begin)
		}
		b.WriteString(`"}`)
	}
	b.WriteString(`]}`)
	return []byte(b.String())
}

// writeToken writes a token of the prompt, which depends only on its block's hash and its place.
func (c *Chat) writeToken(b *strings.Builder, at int) {
	id, place := c.HashIDs[at/BlockTokens], at%BlockTokens
	for p, ok := c.begins[id]; ok && place < p.tokens; p, ok = c.begins[id] {
		id = p.of
	}
	rng := routing.Draw(id*BlockTokens + uint64(place) + 1)
	for shift := 0; shift < 24; shift += 8 {
		b.WriteByte('a' + byte(rng>>shift)%26)
	}
	b.WriteByte(' ')
}

// TemplateTokens is the number of tokens that the engines' chat template adds to the texts.
func (c *Chat) TemplateTokens() int {
	tokens := 3 + len("assistant")/tokenBytes
	for i := range c.Ends {
		tokens += 4
		if i == 0 && c.Shared {
			tokens++ // "system" has two tokens
		}
	}
	return tokens
}

// OutputOf returns the length of the answer to a request, by the number that Body has written; 0 if it is unknown.
func OutputOf(body []byte, chats []*Chat) int {
	_, rest, found := bytes.Cut(body, []byte(`"seed":`))
	if !found {
		return 0
	}
	digits := 0
	for digits < len(rest) && rest[digits] >= '0' && rest[digits] <= '9' {
		digits++
	}
	if n, err := strconv.Atoi(string(rest[:digits])); err == nil && n < len(chats) {
		return chats[n].Output
	}
	return 0
}

// Spread returns the requests in the order of their times, each delayed by up to maxDelay: a trace with coarse times
// has brought them forward. Numbers stay.
func Spread(chats []*Chat, maxDelay time.Duration) []*Chat {
	chats = slices.Clone(chats)
	for i, c := range chats {
		later := *c
		later.At += time.Duration(routing.Draw(uint64(c.Number)) % uint64(maxDelay))
		chats[i] = &later
	}
	slices.SortStableFunc(chats, func(a, b *Chat) int { return cmp.Compare(a.At, b.At) })
	return chats
}
