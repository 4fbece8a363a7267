package routing

import (
	"fmt"
	"strings"
	"time"
)

// Request is what a policy may know of the request that it places. All of it
// is gathered before the pool's lock is taken.
type Request struct {
	Now          time.Time
	Rand         uint64 // a fresh random number; the only chance that a policy may use
	Model        uint64 // a hash of the name that the worker is asked for; 0 without one
	Prefix       uint64 // a hash of the prompt up to the end of its first turn; 0 without a prompt
	Blocks       []Block
	PromptTokens int64 // the estimated prefill
	OutputTokens int64 // the expected answer
	Stream       bool
}

// Block is one node of a prompt's chain: its hash stands for all text from the
// prompt's beginning to the block's end, so that two prompts have a block in
// common exactly when they are the same up to there.
type Block struct {
	Hash uint64
	End  int64 // characters of the prompt up to the block's end; grows along a chain
}

// View is one worker as a policy sees it, with the load that this gateway has
// booked on it up to now.
type View struct {
	ID            string
	Index         int // its place among all members of the pool, eligible or not
	Weight        int // at least 1 here: a worker of weight 0 is not eligible
	Group         int // the same for all views of one call: groups do not mix
	Up            bool
	Saturated     bool // its own metrics say that it should get nothing now
	Inflight      int
	MaxInflight   int // 0 is no bound
	Full          bool
	PendingTokens int64 // prefill of requests that it has not answered yet
	OutputTokens  int64 // expected output of all requests in flight
	Waiting       int   // requests in the engine's own queue, as last observed
	KVUsage       float64
	Overlap       int64   // tokens at the prompt's beginning that requests in flight on the worker have too
	Rate          float64 // learned prefill, tokens/s
}

// score is the load that candidates are compared by: booked tokens for each
// unit of weight.
func (v *View) score() float64 {
	return float64(v.PendingTokens+v.OutputTokens) / float64(v.Weight)
}

// Reason says in one word why a worker was chosen.
type Reason string

// The reasons, one for each way of choosing.
const (
	ReasonRoundRobin Reason = "round_robin" // it was its turn
	ReasonLeastLoad  Reason = "least_load"  // it had the least booked on it
)

// Policy chooses a worker. The pool calls Pick under its lock, so that a
// policy is plain single-threaded code; in return Pick must neither block nor
// allocate, and must keep no part of ws.
type Policy interface {
	// Name returns the policy's name in config.yaml.
	Name() string
	// Pick returns an index into ws, which holds eligible workers only and at
	// least one, in the order of the pool's members. -1 abstains: the pool then
	// takes the least loaded one.
	Pick(r *Request, ws []View) (int, Reason)
}

// Config names a policy, as config.yaml writes it.
type Config struct {
	Name            string   `yaml:"name"`              // one of Names; empty is least_load
	Epsilon         *float64 `yaml:"epsilon"`           // chwbl: how far over the mean load a worker may go, as a share; nil is 0.25
	Slack           *float64 `yaml:"slack"`             // chwbl: requests over that bound, times the square root of the mean; nil is 2
	VirtualNodes    int      `yaml:"virtual_nodes"`     // chwbl: points on the ring for each unit of weight; 0 is 150
	MaxPrefixLength int      `yaml:"max_prefix_length"` // chwbl: characters of the prompt that its key may stand for; 0 is no bound
	NoKey           string   `yaml:"no_key"`            // chwbl: what places requests without a prompt, least_load or model_hash; empty is least_load
	Depth           string   `yaml:"depth"`             // chwbl: adaptive follows what the traffic shares, fixed takes the first turn; empty is adaptive
}

// Names returns the names of all policies, sorted.
func Names() []string { return []string{"least_load", "round_robin"} }

// New makes a policy with no memory yet. Its error names the unknown name and
// the one that was probably meant.
func New(c Config) (Policy, error) {
	switch c.Name {
	case "", "least_load":
		return leastLoad{}, nil
	case "round_robin":
		return &roundRobin{last: -1}, nil
	}
	known := strings.Join(Names(), ", ")
	if near := nearest(c.Name, Names()); near != "" {
		return nil, fmt.Errorf("unknown policy %q (did you mean %s? known are %s)", c.Name, near, known)
	}
	return nil, fmt.Errorf("unknown policy %q (known are %s)", c.Name, known)
}

// nearest returns the name that differs from s in the fewest letters, or ""
// when more than a third of s would have to change: beyond that a guess
// misleads more often than it helps. Two letters may always differ, which is
// what swapping two costs.
func nearest(s string, names []string) string {
	best, found := max(len(s)/3, 2)+1, ""
	for _, name := range names {
		if d := distance(s, name); d < best {
			best, found = d, name
		}
	}
	return found
}

// distance is the Levenshtein distance in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
