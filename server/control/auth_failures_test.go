package control

import (
	"fmt"
	"testing"
	"time"
)

// AU-05: the number of counted addresses is bounded, and each minute starts at 0.
func TestAuthFailuresAreCountedPerMinuteAndBounded(t *testing.T) {
	var g AuthFailureLimiter
	now := time.Unix(1000, 0)
	for i := range maxAddresses + 100 {
		g.Add(fmt.Sprintf("ip-%d", i), now)
	}
	if len(g.byIP) != maxAddresses+1 {
		t.Errorf("%d addresses are counted", len(g.byIP))
	}
	for range failuresPerMinute {
		g.Add("ip-0", now)
	}
	if tooMany, wait := g.Add("ip-0", now.Add(59*time.Second)); !tooMany || wait != time.Second {
		t.Errorf("%v for %v", tooMany, wait)
	}
	if tooMany, _ := g.Add("2001:db8::1", now); !tooMany {
		t.Error("addresses beyond the bound are not counted")
	}
	g = AuthFailureLimiter{}
	for i := range failuresPerMinute {
		g.Add(fmt.Sprintf("2001:db8:0:1::%x", i), now)
	}
	if tooMany, _ := g.Add("2001:db8:0:1::ffff", now); !tooMany {
		t.Error("the addresses of one IPv6 network are counted apart")
	}
	if tooMany, _ := g.Add("ip-0", now.Add(time.Minute)); tooMany {
		t.Error("the failures of the previous minute still count")
	}
}
