package control

import (
	"testing"

	"tierway/routing/kvindex"
	"tierway/workers/kvcache"
	"tierway/workers/kvstream"
)

func TestEventsThatCannotBeUsedReachAMetric(t *testing.T) {
	if eventGauges(&kvcache.View{}) != nil {
		t.Error("a worker without events has metrics of events")
	}
	v := kvcache.View{Streams: 1, Index: kvindex.Counts{Unknown: 1, Evicted: 2, Unusable: 3, Resettled: 4}}
	v.Counts.Rejected, v.Counts.Unnamed = 5, 6
	v.Counts.Happened[kvstream.Unsequenced], v.Counts.Happened[kvstream.Undecodable] = 7, 8
	g := eventGauges(&v)
	got := [...]int64{g.UnknownBlocks, g.EvictedBlocks, g.UnusableBlocks, g.ChangedBlocks, g.Rejected, g.Unnamed,
		g.Unsequenced, g.Undecodable}
	if got != [...]int64{1, 2, 3, 4, 5, 6, 7, 8} {
		t.Errorf("%v", got)
	}
}
