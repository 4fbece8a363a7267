package routing

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"tierway/routing/prefix"
)

// Request is what a policy may know of a request. It is gathered before the pool's lock
// is taken.
type Request struct {
	Now          time.Time
	Rand         uint64 // a fresh random number; the only chance that a policy may use
	Model        uint64 // a hash of the name that the worker is asked for; 0 without one
	Prefix       uint64 // a hash of the prompt up to the end of its first turn; 0 without a prompt
	Blocks       []Block
	PromptTokens int64 // the estimated prefill
	OutputTokens int64 // the expected answer
	Stream       bool
	Waited       time.Duration // how long it has waited up to Now
	Wait         bool          // the caller can wait: a Planner is shown full workers too, and may choose one of them
	Only         any           // when not nil, the Ref of the one member that may take it
	Record       *Choice       // filled by each pick; nil records nothing

	learned     bool         // a policy was asked for it before, and has learned from it
	preview     bool         // it is not to be sent: nothing of it is counted
	recorded    *Choice      // what a policy remembered at the pick that is decided again; nil for none
	assessments []assessment // what a policy says of each candidate, while it is recorded; else nil
	runnerUp    int          // while it is recorded: whom it would choose without the chosen one; -1: by the marks
}

// Block is one node of a prompt's chain.
type Block = prefix.Block

// View is one worker as a policy sees it, with the load that this gateway has booked on it.
type View struct {
	ID            string
	Index         int // its place among all members of the pool, eligible or not
	Weight        int // at least 1 here: a worker of weight 0 is not eligible
	Group         int // the same for all views of one call: groups do not mix
	Up            bool
	Saturated     bool  // its own metrics say that it should get nothing now
	Inflight      int   // with those that wait for it in this round, like the tokens
	MaxInflight   int   // 0 is no bound
	Full          bool  // it can take the request only after a release; true only before a Planner
	PendingTokens int64 // prefill of requests that it has not answered yet
	OutputTokens  int64 // expected output of all requests in flight
	Waiting       int   // requests in the engine's own queue, as last observed
	KVUsage       float64
	Overlap       int64   // tokens at the prompt's beginning that requests in flight on the worker have too, or had in the last minutes
	Rate          float64 // learned prefill, tokens/s

	computing int64 // part of Overlap that is in flight
}

// score is the load that candidates are compared by: booked tokens per unit of weight.
func (v *View) score() float64 {
	return float64(v.PendingTokens+v.OutputTokens) / float64(v.Weight)
}

// Reason says in one word why a worker was chosen.
type Reason string

// The reasons.
const (
	ReasonRoundRobin         Reason = "round_robin"          // it was its turn
	ReasonWeightedRoundRobin Reason = "weighted_round_robin" // it was its turn by weight
	ReasonRandom             Reason = "random"               // it was drawn
	ReasonLeastLoad          Reason = "least_load"           // it had the least booked on it
	ReasonPowerOfTwo         Reason = "power_of_two"         // it had less booked on it than another one drawn
	ReasonPrefixHome         Reason = "prefix_home"          // the prompt's beginning belongs to it
	ReasonPrefixOverflow     Reason = "prefix_overflow"      // the prompt's home had too much on it; this is the next one that had not
	ReasonPrefixSaturated    Reason = "prefix_saturated"     // all had too much on them; this is the prompt's home, or the next one that is open
	ReasonModelHome          Reason = "model_home"           // the request has no prompt, and its model belongs to it
	ReasonModelOverflow      Reason = "model_overflow"       // the model's home had too much on it; this is the next one that had not
	ReasonModelSaturated     Reason = "model_saturated"      // all had too much on them; this is the model's home, or the next one that is open
)

// policies are all policies, sorted by name.
var policies = []struct {
	name    string
	reasons []Reason // beside ReasonLeastLoad, for the picks from which the policy abstains
	make    func(Config) Policy
}{
	{"chwbl", []Reason{ReasonPrefixHome, ReasonPrefixOverflow, ReasonPrefixSaturated,
		ReasonModelHome, ReasonModelOverflow, ReasonModelSaturated}, func(c Config) Policy { return newCHWBL(c) }},
	{"least_load", nil, func(Config) Policy { return leastLoad{} }},
	{"power_of_two", []Reason{ReasonPowerOfTwo}, func(Config) Policy { return powerOfTwo{} }},
	{"random", []Reason{ReasonRandom}, func(Config) Policy { return random{} }},
	{"round_robin", []Reason{ReasonRoundRobin}, func(Config) Policy { return &roundRobin{last: -1} }},
	{"weighted_round_robin", []Reason{ReasonWeightedRoundRobin}, func(Config) Policy { return newWeightedRoundRobin() }},
}

// Names returns the names of all policies, sorted.
func Names() (names []string) {
	for _, p := range policies {
		names = append(names, p.name)
	}
	return names
}

// Reasons returns all reasons that a policy of that name can give.
func Reasons(policy string) (reasons []Reason) {
	for _, p := range policies {
		if p.name == policy {
			reasons = slices.Clone(p.reasons)
		}
	}
	return append(reasons, ReasonLeastLoad)
}

// New makes a policy with no memory yet. Its error names the unknown name and all that
// there are. The tags of Config bound all other values, and config refuses what is beyond.
func New(c Config) (Policy, error) {
	name := cmp.Or(c.Name, "least_load")
	for _, p := range policies {
		if p.name == name {
			return p.make(c), nil
		}
	}
	return nil, fmt.Errorf("unknown policy %q (known: %s)", c.Name, strings.Join(Names(), ", "))
}

// Policy chooses a worker. The pool calls Pick under its lock: a policy is single-threaded
// code. Pick must neither block nor allocate, and must keep no part of ws.
type Policy interface {
	// Name returns the policy's name in config.yaml.
	Name() string
	// Pick returns an index into ws: the eligible workers, at least one, in the order of
	// the members. -1 abstains: the pool takes the least loaded one.
	Pick(r *Request, ws []View) (int, Reason)
}

// Planner is a Policy that weighs waiting for a worker against another worker. For a
// request that can wait it is shown full workers too, with their backlog as load. If it
// picks a full one, the request waits for that worker (ErrBestWorkerFull, or ErrFull if all are full).
type Planner interface {
	// Plans reports whether the policy plans. It is called when the policy is configured.
	Plans() bool
}

// Adaptive is a Policy that places requests by a part of their prompts that follows the
// traffic.
type Adaptive interface {
	// Depth is safe for concurrent use.
	Depth() prefix.Depth
}

func plans(p Policy) bool {
	planner, ok := p.(Planner)
	return ok && planner.Plans()
}

// Config names a policy, as config.yaml writes it. An empty Name is least_load; any
// other value that is nil, 0 or empty is what its tag absent says.
type Config struct {
	Name    string   `yaml:"name" enum:"chwbl,least_load,power_of_two,random,round_robin,weighted_round_robin" doc:"The policy's name. A tier's or pool's section replaces the file's whole."`
	Epsilon *float64 `yaml:"epsilon" policy:"chwbl" absent:"'0.25'" doc:"'chwbl': how far over the mean load of its peers a worker may go, as a share of it."`
	Slack   *float64 `yaml:"slack" policy:"chwbl" absent:"'2'" doc:"'chwbl': requests that a worker may have over that, times the square root of the mean: with few requests the share alone would be less than one."`
	// A worker's share of the keys is off by one part in the square root of its points: of a
	// thousand by 3 %.
	VirtualNodes    int    `yaml:"virtual_nodes" min:"1" max:"1000" policy:"chwbl" absent:"'150'" doc:"'chwbl': points on the hash ring for each unit of weight. More spread prompts more evenly and take longer to set up."`
	MaxPrefixLength int    `yaml:"max_prefix_length" policy:"chwbl" doc:"'chwbl': characters at the prompt's beginning that place it. 0 is no bound."`
	NoKey           string `yaml:"no_key" enum:"least_load,model_hash" policy:"chwbl" absent:"'least_load'" doc:"'chwbl': what places a request without a prompt. 'model_hash' sends all requests for a model to the same worker."`
	Depth           string `yaml:"depth" enum:"adaptive,fixed" policy:"chwbl" absent:"'adaptive'" doc:"'chwbl': how much of the prompt places it. 'adaptive' goes past what most of the traffic shares, 'fixed' takes the first turn."`
}
