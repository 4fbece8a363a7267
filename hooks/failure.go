package hooks

import "time"

// Failure is a call of a hook without effect, or with a change because of which the request was rejected.
type Failure struct {
	At     time.Time
	Result Result // Transformed: the request was rejected because of the change
	Cause  string // repeats no text of the request
}

// Causes of failures that a key of the configuration can end.
const (
	CauseTransform = "the hook changes the request without transform: true"
	CauseMemory    = "no memory is left for the answer (max_buffered_bytes)"
)

// RecordFailure records the reply of a failed call for State. A failure that the breaker does not count is kept apart:
// it may recur while the breaker stays closed. A call that an open breaker prevents is not recorded.
func (h *Hook) RecordFailure(r *Reply, at time.Time) {
	f := &Failure{At: at, Result: r.Result, Cause: r.Cause}
	switch {
	case r.Result == Open:
	case r.fault() != nil && !r.excluded:
		h.counted.Store(f)
	default:
		h.uncounted.Store(f)
	}
}

// fault returns the error of the call for the breaker.
func (r *Reply) fault() error {
	switch {
	case r.excluded:
		return errExcluded
	case r.Result == Failed || r.Result == TimedOut:
		return errFailure
	}
	return nil
}
