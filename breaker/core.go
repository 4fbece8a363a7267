package breaker

import (
	"errors"
	"time"

	"github.com/sony/gobreaker/v2"
)

// core is the gobreaker under one breaker. Each time that a breaker closes and
// each time that it opens it gets a new one, so that a forced change of state,
// which gobreaker does not have, and a changed configuration need nothing of
// their own. It is used under the breaker's lock only, and its callbacks run
// there.
type core = gobreaker.TwoStepCircuitBreaker[struct{}]

// The verdicts that a core understands, beside nil for success.
var (
	errFailed   = errors.New("failed")
	errExcluded = errors.New("excluded")
)

// windowBuckets is how many steps the rolling window moves in: with ten of
// them a failure is forgotten at most a tenth of the window late.
const windowBuckets = 10

// newClosed makes a core that counts, and asks ripe after each failure whether
// to open.
func newClosed(c Config, ripe func(gobreaker.Counts) bool) *core {
	return gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests:  uint32(c.Probes),
		Interval:     c.Window,
		BucketPeriod: max(1, c.Window/windowBuckets),
		Timeout:      1,
		ReadyToTrip:  ripe,
		IsExcluded:   func(err error) bool { return err == errExcluded },
	})
}

// newOpen makes a core that is open and can be made half-open a nanosecond
// later by reading its state: how long a breaker stays open is the breaker's
// own concern, because gobreaker can neither spread it nor end it early.
func newOpen(c Config) *core {
	k := newClosed(c, func(gobreaker.Counts) bool { return true })
	report(k, errFailed)
	return k
}

// report counts a verdict. It is counted when it is known and not when its
// request began: gobreaker forgets a verdict that took longer than the window,
// and the worst failures, timeouts, are those.
func report(k *core, verdict error) {
	if done, err := k.Allow(); err == nil {
		done(verdict)
	}
}

// opened tells whether the last verdict opened a core that was closed.
func opened(k *core) bool { return k.State() != gobreaker.StateClosed }

// halved makes an open core half-open, which fails while its clock stands at
// the moment of its opening.
func halved(k *core) bool { return k.State() == gobreaker.StateHalfOpen }

// totals returns the failures and the verdicts within the window of a core
// that is closed.
func totals(k *core) (failures, requests int) {
	k.State() // moves the window on
	n := k.Counts()
	return int(n.TotalFailures), int(n.TotalFailures + n.TotalSuccesses)
}

// spread returns a duration within a tenth of d, so that workers that failed
// together are not all tried at the same moment. unit is of [0, 1).
func spread(d time.Duration, unit float64) time.Duration {
	return time.Duration(float64(d) * (0.9 + 0.2*unit))
}
