package control

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tierway/queue"
	"tierway/telemetry"
)

// TestMetricsShowEveryNumberOfAClass: each number of the queue's view has its own value here.
func TestMetricsShowEveryNumberOfAClass(t *testing.T) {
	c := &queue.ClassView{Depth: 1, Tokens: 2, Oldest: 3 * time.Second, Drain: 4 * time.Second, Entered: 5, Dispatched: 6,
		Promoted: 7, Abandoned: 8, Expired: 9, Moved: 16}
	for i := range c.Shed {
		c.Shed[i] = int64(10 + i)
	}
	gauges := telemetry.ClassGauges{Class: "batch", Depth: 1, Oldest: 3 * time.Second, Entered: 5, Dispatched: 6,
		Promoted: 7, Abandoned: 8, Expired: 9, Moved: 16,
		Shed: []telemetry.ShedTotal{{Reason: "depth", Total: 10}, {Reason: "bytes", Total: 11}, {Reason: "wait", Total: 12},
			{Reason: "deadline", Total: 13}, {Reason: "displaced", Total: 14}, {Reason: "engine", Total: 15}}}
	if diff := cmp.Diff(gauges, classGauges("batch", c)); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}
