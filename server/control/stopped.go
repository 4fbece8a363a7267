package control

import (
	"time"

	"tierway/routing"
	"tierway/workers"
)

// Stopped holds the workers that have stopped answering, each with the reason as the end of a sentence about it:
// they hang, are down, or run no requests, and have sent nothing for a while. What they have in flight will not
// be answered soon.
type Stopped map[*Member]string

// Silent is the reason for a worker of which a single request is overdue for long. Only such requests are in
// doubt: a hang is not proven.
const Silent = "sends nothing"

// stoppedSilence is the silence after which a worker that is down or suspended has stopped answering. Until
// then it may finish its requests, as engines do before they exit.
const stoppedSilence = 5 * time.Second

// add adds the worker if it has stopped answering.
func (s Stopped) add(v *routing.WorkerView, st *workers.Status, now time.Time) {
	switch {
	case !v.HungAt.IsZero():
		s[v.Ref.(*Member)] = "hangs"
	case v.Unanswered:
		s[v.Ref.(*Member)] = Silent
	case now.Sub(v.HeardAt) < stoppedSilence:
	case !st.Up:
		s[v.Ref.(*Member)] = "is down"
	case st.Suspended != "":
		s[v.Ref.(*Member)] = "is " + string(st.Suspended)
	}
}

// OnStopped sets the function that receives the workers that have stopped answering, once a second while there
// are any. It must be called before Run.
func (ps *Pools) OnStopped(f func(Stopped)) { ps.onStopped = f }
