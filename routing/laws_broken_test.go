package routing_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	_ "tierway/fixedseed"
	"tierway/routing"
)

// brokenEnv names the broken policy that a child process puts before the laws.
const brokenEnv = "ROUTING_BROKEN_POLICY"

// pick makes a policy of a function.
type pick func(r *routing.Request, ws []routing.View) (int, routing.Reason)

func (pick) Name() string { return "broken" }

func (p pick) Pick(r *routing.Request, ws []routing.View) (int, routing.Reason) { return p(r, ws) }

// broken returns, for each law that a policy can break, a constructor of a policy that breaks it, and a
// word of the failure message.
func broken() map[string]struct {
	complaint string
	make      func() routing.Policy
} {
	var shared atomic.Uint64
	kept := new([]int)
	type row = struct {
		complaint string
		make      func() routing.Policy
	}
	always := func(p pick) func() routing.Policy { return func() routing.Policy { return p } }
	return map[string]row{
		"beyond the end": {"picked index",
			always(func(_ *routing.Request, ws []routing.View) (int, routing.Reason) { return len(ws), "x" })},
		"below minus 1": {"picked index",
			always(func(*routing.Request, []routing.View) (int, routing.Reason) { return -2, "x" })},
		"no reason": {"no reason",
			always(func(*routing.Request, []routing.View) (int, routing.Reason) { return 0, "" })},
		"unsteady": {"the same facts gave", always(func(_ *routing.Request, ws []routing.View) (int, routing.Reason) {
			return int(shared.Add(1) % uint64(len(ws))), "x"
		})},
		"meddling": {"changed the facts", always(func(_ *routing.Request, ws []routing.View) (int, routing.Reason) {
			slices.Reverse(ws)
			return 0, "x"
		})},
		"remembering": {"FAIL: TestLawsCatchBrokenPolicies/RecordsAreThePickItself", func() routing.Policy {
			calls := 0
			return pick(func(_ *routing.Request, ws []routing.View) (int, routing.Reason) {
				calls++
				return calls % len(ws), "x"
			})
		}},
		"allocating": {"allocations", always(func(_ *routing.Request, ws []routing.View) (int, routing.Reason) {
			*kept = make([]int, len(ws)) // lives on, so that it is on the heap
			return 0, "x"
		})},
	}
}

// TestLawsCatchBrokenPolicies runs the laws on broken policies, each in its own process, because there
// they must fail.
func TestLawsCatchBrokenPolicies(t *testing.T) {
	if name := os.Getenv(brokenEnv); name != "" {
		policyLaws(t, broken()[name].make)
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range broken() {
		t.Run(name, func(t *testing.T) {
			child := exec.Command(self, "-test.run=^TestLawsCatchBrokenPolicies$", "-rapid.nofailfile", "-rapid.shrinktime=0s",
				"-rapid.checks=20")
			child.Env = append(os.Environ(), brokenEnv+"="+name)
			out, err := child.CombinedOutput()
			if err == nil || !strings.Contains(string(out), b.complaint) {
				t.Errorf("the laws did not say %q (%v):\n%s", b.complaint, err, out)
			}
		})
	}
}

func TestAbstainingPolicyKeepsTheLaws(t *testing.T) {
	policyLaws(t, func() routing.Policy {
		return pick(func(*routing.Request, []routing.View) (int, routing.Reason) { return -1, "" })
	})
}

// planner is a policy that plans.
type planner struct{ pick }

func (planner) Plans(*routing.Request) bool { return true }

// TestPlannersKeepTheLaws runs the laws on planners that abstain, and on planners that wait whenever they
// can.
func TestPlannersKeepTheLaws(t *testing.T) {
	for name, p := range map[string]pick{
		"abstains": func(*routing.Request, []routing.View) (int, routing.Reason) { return -1, "" },
		"waits": func(_ *routing.Request, ws []routing.View) (int, routing.Reason) {
			return max(0, slices.IndexFunc(ws, func(v routing.View) bool { return v.Full })), "x"
		},
	} {
		t.Run(name, func(t *testing.T) { policyLaws(t, func() routing.Policy { return planner{p} }) })
	}
}
