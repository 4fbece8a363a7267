package tenants

import (
	"math"
	"time"
)

// budgetWindows is a subject's usage of its budgets in two windows: the current one, and the one
// before it, which may still have in-flight requests.
type budgetWindows [2]window

// window is one UTC day or month of a subject.
type window struct {
	index     int
	spent     Spent // as far as this process knows
	own       Spent // the part that this process has settled
	confirmed Spent // the part of own that the shared counters have confirmed
	shared    Spent // the last value of the shared counters
	synced    bool  // the shared counters have replied
	ledger    Spent // from the ledger, of all gateways
}

// maxBack is how far a clock may go back. Budgets then stay in the windows that have begun. A window further ahead
// was begun by a wrong clock, and has no effect.
const maxBack = 48 * time.Hour

// current returns the index of the newest window that has begun, from that of the clock to the last plausible one.
func (a *budgetWindows) current(clock, last int) int {
	for i := range a {
		if a[i].index <= last {
			clock = max(clock, a[i].index)
		}
	}
	return clock
}

// currentDay returns the current day at a time.
func (s *state) currentDay(at time.Time) int { return s.days.current(Day(at), Day(at.Add(maxBack))) }

// currentMonth returns the current month at a time.
func (s *state) currentMonth(at time.Time) int {
	return s.months.current(Month(at), Month(at.Add(maxBack)))
}

// at returns the window with that index. It creates one that is newer than one of the two, or in place of one that
// is later than the last plausible one. It returns nil for an older one.
func (a *budgetWindows) at(index, last int) *window {
	oldest := &a[0]
	for i := range a {
		if a[i].index == index {
			return &a[i]
		}
		if a[i].index > last {
			a[i] = window{}
		}
		if a[i].index < oldest.index {
			oldest = &a[i]
		}
	}
	if index < oldest.index {
		return nil
	}
	*oldest = window{index: index}
	return oldest
}

// window returns the window with that index, or an empty one.
func (a *budgetWindows) window(index int) window {
	for i := range a {
		if a[i].index == index {
			return a[i]
		}
	}
	return window{}
}

// addUsage books the usage of a request of that window. last is the last plausible window.
func (a *budgetWindows) addUsage(index, last int, u Spent) {
	if w := a.at(index, max(index, last)); w != nil {
		w.own = w.own.plus(u)
		w.spent = w.spent.plus(u)
	}
}

// seed raises the known usage to the ledger's. last is the last plausible window.
func (a *budgetWindows) seed(index, last int, s Spent) {
	if w := a.at(index, last); w != nil {
		w.spent = w.spent.raised(s)
		w.ledger = w.ledger.raised(s)
	}
}

// sharedFloor returns the minimum that the shared counters must hold, without the usage that this
// process still has to add. After their first reply it is that reply: the ledger also contains usage
// that other gateways have not added yet, and would count it twice. Before the first reply, the
// counters may be empty, and the ledger is the only source.
func (w window) sharedFloor() Spent {
	if w.synced {
		return w.shared
	}
	return w.ledger.minus(w.own.minus(w.confirmed))
}

// updateShared applies the value of a shared counter. Replies may arrive in any order: usage
// that is not in this one is added to it.
func (a *budgetWindows) updateShared(index int, h SharedCounter) {
	if w := a.at(index, math.MaxInt); w != nil {
		w.synced = true
		w.confirmed = w.confirmed.raised(h.Own)
		w.shared = w.shared.raised(h.Sum)
		w.spent = w.spent.raised(h.Sum.plus(w.own.minus(h.Own)))
	}
}

// maxSum bounds sums. It is far above any budget, and two sums can be added without overflow.
const maxSum = 1 << 61

func (s Spent) plus(o Spent) Spent {
	return Spent{Tokens: min(s.Tokens+min(max(0, o.Tokens), maxSum), maxSum),
		Money: min(s.Money+min(max(0, o.Money), maxSum), maxSum)}
}

func (s Spent) minus(o Spent) Spent {
	return Spent{Tokens: max(0, s.Tokens-o.Tokens), Money: max(0, s.Money-o.Money)}
}

func (s Spent) raised(o Spent) Spent {
	return Spent{Tokens: max(s.Tokens, min(o.Tokens, maxSum)), Money: max(s.Money, min(o.Money, maxSum))}
}
