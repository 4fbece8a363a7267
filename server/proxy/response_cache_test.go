package proxy

import (
	"testing"

	"tierway/openai"
	"tierway/server/control"
	"tierway/server/intake"
)

// TestC8OffAllocatesNothing: a request whose pool has no response cache allocates nothing for one.
func TestC8OffAllocatesNothing(t *testing.T) {
	x := &exchange{resolution: intake.Resolution{Pool: &control.Pool{}}}
	if n := testing.AllocsPerRun(100, func() {
		if x.answerFromCache() {
			t.Error("it is answered")
		}
		x.cached.recordEvent(openai.Event{})
		x.recordWhole(nil)
	}); n != 0 || x.cached != nil {
		t.Errorf("%v allocations", n)
	}
}
