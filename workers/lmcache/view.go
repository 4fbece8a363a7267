package lmcache

import "time"

// State is the state of a controller in one word.
type State string

// The states, the worst first.
const (
	StateDown      State = "down"        // it does not answer polls, or look-ups
	StateNoWorkers State = "no_workers"  // it lists no worker
	StateForeign   State = "no_instance" // none of its instances is a worker of the pool
	StateUncounted State = "no_counts"   // it states no numbers of keys, which the policy needs
	StateNoMatch   State = "no_match"    // look-ups of repeated prompts find nothing
	StateStarting  State = "starting"    // no poll has ended
	StateUp        State = "up"
)

// Counts are numbers of look-ups since the start.
type Counts struct {
	Matched, Missed                      int64 // answers with a match of a worker of the pool, and without
	Failed, TimedOut, Suspended, Skipped int64 // Suspended: not sent after a failure; Skipped: too many at a time
}

// View is the state of a controller at one moment.
type View struct {
	URL       string
	State     State
	Since     time.Time // of the last change between up and down; zero before the first poll
	Fault     string    // why it is down
	Instances int       // that it lists
	Known     int       // of these, workers of the pool
	Keys      int64     // of these
	Counts    Counts
}

// View returns the state of the controller.
func (k *Controller) View() View {
	l := &k.lookups
	v := View{URL: k.url, State: StateUp, Counts: Counts{Matched: l.matched.Load(), Missed: l.missed.Load(),
		Failed: l.failed.Load(), TimedOut: l.timedOut.Load(), Suspended: l.suspended.Load(), Skipped: l.busy.Load()}}
	list := k.Listing()
	k.mu.Lock()
	defer k.mu.Unlock()
	v.Since, v.Fault = k.since, k.fault
	if at := l.since.Load(); at > 0 && time.Unix(0, at).After(v.Since) {
		v.Since = time.Unix(0, at)
	}
	if list != nil {
		v.Instances, v.Known = len(list.Instances), k.known(list)
		for _, i := range list.Instances {
			if k.c.Known(i.ID) {
				v.Keys += i.Keys
			}
		}
	}
	switch {
	case l.down.Load():
		v.State, v.Since = StateDown, time.Unix(0, l.since.Load())
		v.Fault, _ = l.cause.Load().(string)
	case !k.polled:
		v.State = StateStarting
	case k.fault != "":
		v.State = StateDown
	case list == nil: // look-ups only, and a version without a list
	case v.Instances == 0:
		v.State = StateNoWorkers
	case v.Known == 0:
		v.State = StateForeign
	case !k.c.Lookups && !list.Counted:
		v.State = StateUncounted
	case l.misses.Load() >= warnMisses:
		v.State = StateNoMatch
	}
	return v
}
