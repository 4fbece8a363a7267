package hooks

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"tierway/breaker"
)

const (
	// MaxInflight is the largest number of calls of a hook at a time. A service that answers within 20 ms then takes
	// 3,200 calls per second; a slower one must not collect the bodies of all requests.
	MaxInflight = 64
	// openFor is how long a hook is not called after its breaker has opened. It is shorter than that of workers: no
	// health check ends it early, and no other hook can take the request.
	openFor = 5 * time.Second
)

type caller interface {
	// call sends a request and returns the answer. It ends with ctx.
	call(ctx context.Context, r *Request) Reply
	// close closes the connections once they are idle. Calls in flight continue to their end, and a later call closes its
	// own connection.
	close()
}

// Hook is a service of a configuration. It is safe for concurrent use.
type Hook struct {
	Spec
	caller   caller
	gate     *breaker.Breaker
	inflight atomic.Int64
	retired  atomic.Bool

	counted, uncounted atomic.Pointer[Failure] // the last ones, by whether the breaker counts them
}

// newHook returns a hook without connections.
func newHook(s Spec, o Options) *Hook {
	h := &Hook{Spec: s, caller: newCaller(s, o)}
	h.gate = breaker.New(breaker.Config{OpenFor: openFor, ProbeTimeout: s.Timeout},
		breaker.Options{Outcome: outcomeOf, Rand: o.Rand, OnChange: func(c breaker.Change) { h.changed(c, o.Log) }})
	return h
}

// Errors of calls, for the breaker.
var (
	errFailure  = errors.New("the call failed")
	errExcluded = errors.New("the service is not at fault")
)

func outcomeOf(err error) breaker.Outcome {
	switch {
	case err == nil:
		return breaker.Success
	case errors.Is(err, errExcluded):
		return breaker.Excluded
	}
	return breaker.Failure
}

// changed logs a change of the breaker.
func (h *Hook) changed(c breaker.Change, log *slog.Logger) {
	if h.Retired() {
		return
	}
	if c.To == breaker.Open {
		log.Warn("a hook's breaker is open: it is not called", "hook", h.Name, "cause", c.Cause, "on_error", h.OnError,
			"until", c.Until.UTC().Format(time.RFC3339))
		return
	}
	log.Info("a hook's breaker is "+c.To.String(), "hook", h.Name, "cause", c.Cause)
}

// Call sends a request to the service within the hook's timeout and left, the time that all hooks of the request have
// left. It ends early if ctx ends, because the client has left.
func (h *Hook) Call(ctx context.Context, r *Request, left time.Duration) Reply {
	defer h.inflight.Add(-1)
	if h.inflight.Add(1) > MaxInflight {
		return Reply{Result: Busy, Cause: "64 calls are in flight"}
	}
	if left <= 0 {
		return Reply{Result: TimedOut, Cause: "the hooks before it have used the time of hooks_timeout", excluded: true}
	}
	ticket, err := h.gate.Allow(h.Timeout)
	if err != nil {
		return Reply{Result: Open, Cause: "the breaker is open after failed calls"}
	}
	reported := false
	defer func() { // for a panic
		if !reported {
			h.gate.Report(ticket, errFailure)
		}
	}()
	within, cancel := context.WithTimeout(ctx, min(h.Timeout, left))
	defer cancel()
	reply := h.caller.call(within, r)
	switch {
	case reply.Result != Failed:
	case ctx.Err() != nil:
		reply = Reply{Result: Cancelled, Cause: "the client left", excluded: true}
	case within.Err() != nil:
		reply = Reply{Result: TimedOut, Cause: "no answer within " + min(h.Timeout, left).Round(time.Millisecond).String(),
			excluded: left < h.Timeout} // the hooks before it used the time
	}
	reported = true
	h.gate.Report(ticket, reply.fault())
	return reply
}

// Retired reports whether no configuration in force has the hook. Requests that began before may still call it.
func (h *Hook) Retired() bool { return h.retired.Load() }

// State is the state of a hook at one moment.
type State struct {
	Inflight int64
	Breaker  string // closed, open or half_open
	Until    time.Time
	Cause    string // of the breaker's last change

	Counted   *Failure // the last failure that the breaker counts; nil: none
	Uncounted *Failure // the last failure that it does not count, such as a refused change; nil: none
}

// State returns the state of the hook.
func (h *Hook) State() State {
	v := h.gate.View()
	return State{Inflight: h.inflight.Load(), Breaker: v.State.String(), Until: v.Until, Cause: v.Cause,
		Counted: h.counted.Load(), Uncounted: h.uncounted.Load()}
}

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
