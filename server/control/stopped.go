package control

import (
	"time"

	"tierway/routing"
	"tierway/workers"
)

// StoppedWorkers holds the workers that have stopped answering. A worker hangs, has an overdue request, or is down or
// suspended and has sent nothing for suspendedSilence.
type StoppedWorkers map[*Member]Stop

// Stop is the state of a worker that has stopped answering.
type Stop struct {
	Reason string    // a predicate, such as "hangs"
	Since  time.Time // when the worker was first found to have stopped
}

// The reasons of a Stop besides "is asleep" and "is paused".
const (
	ReasonHangs = "hangs"
	ReasonDown  = "is down" // whole answers may still end
	// ReasonSilent means that a hang is not proven: only overdue requests are in doubt.
	ReasonSilent = "sends nothing"
)

// suspendedSilence is the silence after which a worker that is down or suspended has stopped answering. Until
// then it may finish its requests, as engines do before they exit.
const suspendedSilence = 5 * time.Second

// addIfStopped adds the worker if it has stopped answering. Only the poll calls it.
func (s StoppedWorkers) addIfStopped(v *routing.WorkerView, st *workers.Status, now time.Time) {
	m := v.Ref.(*Member)
	reason := stopReason(v, st, m.Gate.View().Hung, now)
	if reason == "" {
		m.stoppedAt = time.Time{}
		return
	}
	if m.stoppedAt.IsZero() {
		m.stoppedAt = now
	}
	s[m] = Stop{reason, m.stoppedAt}
}

// stopReason returns why a worker has stopped answering, or "". hung means that its breaker has not closed since
// a hang: while it is probed, the older requests are still without an answer.
func stopReason(v *routing.WorkerView, st *workers.Status, hung bool, now time.Time) string {
	switch {
	case !v.HungAt.IsZero():
		return ReasonHangs
	case now.Sub(v.LastByteAt) < suspendedSilence:
	case hung:
		return ReasonHangs
	case !st.Up:
		return ReasonDown
	case st.Suspended != "":
		return "is " + string(st.Suspended)
	case v.Unanswered:
		return ReasonSilent
	}
	return ""
}

// logSilent logs the workers that begin or end to send nothing without a proven hang. Breakers and health checks log
// the other reasons. Only the poll calls it.
func (ps *Pools) logSilent(stopped StoppedWorkers) {
	for m, stop := range stopped {
		if stop.Reason == ReasonSilent && !ps.silent[m] {
			ps.silent[m] = true
			ps.log.Warn("a worker sends nothing, and a request is overdue", "worker", m.Name, "tier", m.Worker.Pool())
		}
	}
	for m := range ps.silent {
		if stop, ok := stopped[m]; !ok || stop.Reason != ReasonSilent {
			delete(ps.silent, m)
			ps.log.Info("a worker no longer has an overdue request", "worker", m.Name, "tier", m.Worker.Pool())
		}
	}
}

// OnStopped sets the function that receives the workers that have stopped answering, once a second while there
// are any. It must be called before Run.
func (ps *Pools) OnStopped(f func(StoppedWorkers)) { ps.onStopped = f }
