package control

import (
	"fmt"
	"testing"
	"time"
)

// AU-05: memory for guessers is bounded, and a new minute begins with nothing.
func TestGuessesAreCountedByMinuteAndBounded(t *testing.T) {
	var g AuthFailureLimiter
	now := time.Unix(1000, 0)
	for i := range guessersMax + 100 {
		g.Add(fmt.Sprintf("ip-%d", i), now)
	}
	if len(g.byIP) != guessersMax+1 {
		t.Errorf("%d addresses are remembered", len(g.byIP))
	}
	for range guessesAMinute {
		g.Add("ip-0", now)
	}
	if tooMany, wait := g.Add("ip-0", now.Add(59*time.Second)); !tooMany || wait != time.Second {
		t.Errorf("%v for %v", tooMany, wait)
	}
	if tooMany, _ := g.Add("2001:db8::1", now); !tooMany {
		t.Error("beyond the bound everybody may guess")
	}
	g = AuthFailureLimiter{}
	for i := range guessesAMinute {
		g.Add(fmt.Sprintf("2001:db8:0:1::%x", i), now)
	}
	if tooMany, _ := g.Add("2001:db8:0:1::ffff", now); !tooMany {
		t.Error("a network of IPv6 may guess with each of its addresses")
	}
	if tooMany, _ := g.Add("ip-0", now.Add(time.Minute)); tooMany {
		t.Error("a minute later it is still too many")
	}
}
