package admin

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tierway/queue"
)

// TestAPIShowsEveryNumberOfAClass: each number of the queue's view has its own value here.
func TestAPIShowsEveryNumberOfAClass(t *testing.T) {
	c := &queue.ClassView{Depth: 1, Tokens: 2, Oldest: 3 * time.Second, Drain: 4 * time.Second, Entered: 5, Dispatched: 6,
		Promoted: 7, Abandoned: 8, Expired: 9, Moved: 16}
	for i := range c.Shed {
		c.Shed[i] = int64(10 + i)
	}
	state := classState{Depth: 1, Oldest: 3000, MaxWait: 60_000, Tokens: 2, Drain: new(4000.0), Entered: 5, Dispatched: 6,
		Promoted: 7, Abandoned: 8, Expired: 9, Moved: 16,
		Shed: map[string]int64{"depth": 10, "bytes": 11, "wait": 12, "deadline": 13, "displaced": 14, "engine": 15}}
	if diff := cmp.Diff(state, classStateOf(c, time.Minute)); diff != "" {
		t.Errorf("the admin API (-want +got):\n%s", diff)
	}
}
