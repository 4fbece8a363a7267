package admin

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tierway/workers/kvcache"
	"tierway/workers/kvstream"
)

func TestStateOfEventsIsThatOfTheWorstStream(t *testing.T) {
	up := time.Date(2026, 11, 24, 1, 2, 3, 0, time.UTC)
	read := kvcache.Counts{Batches: 7, Resets: 2}
	read.Happened[kvstream.Gap], read.Happened[kvstream.ReplayFailed] = 3, 1
	for name, c := range map[string]struct {
		view kvcache.View
		want *eventsState
	}{
		"no source": {kvcache.View{}, nil},
		"whole": {kvcache.View{Streams: 2, Live: true, Known: true, Since: up, Blocks: 5, BlockSize: 16,
			Lag: 3 * time.Millisecond}, &eventsState{State: "complete", Since: "2026-11-24T01:02:03Z", Streams: 2, Blocks: 5,
			BlockSize: 16, Lag: 3}},
		"partial": {kvcache.View{Streams: 1, Live: true, LastGap: up, Counts: read}, &eventsState{State: "partial",
			Streams: 1, LastGap: "2026-11-24T01:02:03Z", Batches: 7, Gaps: 3, Failed: 1, Resets: 2}},
		"lost": {kvcache.View{Streams: 1, Fault: "connection refused"}, &eventsState{State: "down", Streams: 1,
			Error: "connection refused"}},
	} {
		if diff := cmp.Diff(c.want, eventsOf(&c.view, 0, 0)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}
