package control

import (
	"testing"
	"time"
)

func TestPairFailedFindsTheWorkerThatFailsWithOthers(t *testing.T) {
	type step struct {
		prefill, decode string
		serves          bool
		want            PairFault
	}
	for name, steps := range map[string][]step{
		"prefill, with all decode workers": {{"p0", "d0", false, FaultUnknown}, {"p0", "d1", false, FaultOfPrefill},
			{"p0", "d0", false, FaultOfPrefill}},
		"prefill, with the only decode worker": {{"p0", "d0", false, FaultUnknown}, {"p1", "d0", true, 0},
			{"p0", "d0", false, FaultOfPrefill}},
		"decode, with all prefill workers": {{"p0", "d0", false, FaultUnknown}, {"p1", "d0", false, FaultOfDecode},
			{"p0", "d0", false, FaultOfDecode}},
		"decode, with the only prefill worker": {{"p0", "d0", false, FaultUnknown}, {"p0", "d1", true, 0},
			{"p0", "d0", false, FaultOfDecode}},
		"only with each other": {{"p0", "d0", false, FaultUnknown}, {"p1", "d1", true, 0},
			{"p0", "d0", false, FaultOfEither}},
		"each once": {{"p0", "d0", false, FaultUnknown}, {"p1", "d1", false, FaultUnknown}},
	} {
		members, now := map[string]*Member{}, time.Unix(0, 0)
		for _, w := range []string{"p0", "p1", "d0", "d1"} {
			members[w] = &Member{Name: w}
		}
		for i, s := range steps {
			began := now.Add(time.Second)
			now = began.Add(time.Second)
			p, d := members[s.prefill], members[s.decode]
			if s.serves {
				PairSucceeded(p, d)
			} else if got := PairFailed(p, d, began, now); got != s.want {
				t.Errorf("%s: failure %d of %s and %s is %d, want %d", name, i, s.prefill, s.decode, got, s.want)
			}
		}
	}
	p, d := &Member{Name: "p"}, &Member{Name: "d"}
	began := time.Unix(0, 0)
	for i := range 3 { // at once
		if got := PairFailed(p, d, began, began.Add(time.Duration(i+1))); got != FaultUnknown {
			t.Errorf("failure %d of requests that began before the first one is %d", i, got)
		}
	}
}
