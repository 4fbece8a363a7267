package liveness

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"
)

// TestAHangingWorkerKeepsNoRequests is the matrix: in each cell a worker stops answering for 40 s under a
// steady load, and then recovers.
func TestAHangingWorkerKeepsNoRequests(t *testing.T) {
	var all []observation
	for _, k := range selectedCells() {
		t.Run(k.String(), func(t *testing.T) {
			o := observe(t, k)
			all = append(all, o)
			for _, violation := range o.violations() {
				t.Error(violation)
			}
			if t.Failed() {
				t.Log(o.log)
			}
		})
	}
	t.Logf("%d cells\n%s", len(all), observationTable(all))
}

// selectedCells returns the cells to run: all, or those that have each pair of values.
func selectedCells() (cells []cell) {
	dims := dimensions()
	selected := cross(dims)
	if !allCells() {
		selected = append(pairwise(selected), closelyTested(dims)...)
		slices.SortFunc(selected, slices.Compare)
		selected = slices.CompactFunc(selected, slices.Equal)
	}
	for _, at := range selected {
		cells = append(cells, cellOf(dims, at))
	}
	return cells
}

// allCells reports whether TIERWAY_LIVENESS selects the whole matrix.
func allCells() bool { return os.Getenv("TIERWAY_LIVENESS") == "all" }

// closelyTested returns cells of the default policy, the usual policy by prefix, and the usual one by load:
// all combinations of answer, prefix and fault. The numbers of tenants and workers alternate.
func closelyTested(dims []dimension) (chosen [][]int) {
	for _, at := range cross(dims) {
		policy := cellOf(dims, at).policy
		turn := (at[1] + at[2] + at[3]) % 4
		if (policy == "kv_aware" || policy == "chwbl" || policy == "least_load") && at[4] == turn/2 && at[5] == turn%2 {
			chosen = append(chosen, at)
		}
	}
	return chosen
}

// violations returns the bounds that the cell does not keep.
func (o *observation) violations() (v []string) {
	fail := func(format string, args ...any) { v = append(v, fmt.Sprintf(format, args...)) }
	if !o.stopped {
		fail("the worker %s did not fail: it had no request", o.sick)
		return v
	}
	if o.late*sickPart > o.lateOf {
		fail("%d of %d requests were sent to the sick worker %s more than %s after its fault", o.late, o.lateOf, o.sick,
			o.bound())
	}
	if o.longest > o.bound() {
		fail("an attempt was without content on the sick worker %s for %s, longer than %s", o.sick, o.longest, o.bound())
	}
	if !o.eligible {
		fail("the worker %s is down or its breaker is open at the end", o.sick)
	}
	if fair := o.fairShare(); o.after*sharePart < fair {
		fail("the recovered worker %s has %.0f %% of the requests; its fair share is %.0f %%", o.sick, 100*o.after, 100*fair)
	}
	return v
}

// bound is the time after which a sick worker is detected.
func (o *observation) bound() time.Duration { return detectionTime + o.prediction }

// fairShare returns the share that the recovered worker should have: that of each worker, or what it had
// before if a policy places requests by their prompts. Policies that learn where prompts are cached may leave
// them where they are now: then no share is due.
func (o *observation) fairShare() float64 {
	even := 1 / float64(o.workers)
	switch o.policy {
	case "kv_aware", "kv_overlap", "cache_aware":
		if o.prefix != uniquePrefix {
			return 0
		}
		return min(o.before, even)
	case "chwbl", "consistent_hash", "rendezvous_hash":
		return min(o.before, even)
	}
	return even
}
