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
	PromptTokens int64  // the estimated prefill
	OutputTokens int64  // the expected answer
	Stream       bool
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
	Name string `yaml:"name"` // one of Names; empty is least_load
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
