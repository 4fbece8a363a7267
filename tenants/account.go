package tenants

// account is what a subject has used of its budgets in two windows: the present
// one, and the one before it, whose last requests are still under way.
type budgetWindows [2]window

// window is one UTC day or month of a subject.
type window struct {
	index     int
	spent     Spent // as far as this process knows
	own       Spent // of it, what this process has settled
	confirmed Spent // of own, what the shared counters have confirmed
	shared    Spent // the shared counters, as last heard
	synced    bool  // they have answered
	ledger    Spent // what the ledger says, of all gateways
}

// at returns the window of that index, a new one where it is newer than one of
// the two, or nil for one that is over for long.
func (a *budgetWindows) at(index int) *window {
	older := &a[0]
	for i := range a {
		if a[i].index == index {
			return &a[i]
		}
		if a[i].index < older.index {
			older = &a[i]
		}
	}
	if index < older.index {
		return nil
	}
	*older = window{index: index}
	return older
}

// window returns the window of that index; an empty one where there is none.
func (a *budgetWindows) window(index int) window {
	for i := range a {
		if a[i].index == index {
			return a[i]
		}
	}
	return window{}
}

// settle books what a request of that window has used.
func (a *budgetWindows) addUsage(index int, u Spent) {
	if w := a.at(index); w != nil {
		w.own = w.own.plus(u)
		w.spent = w.spent.plus(u)
	}
}

// seed raises what is known as spent, as the ledger says.
func (a *budgetWindows) seed(index int, s Spent) {
	if w := a.at(index); w != nil {
		w.spent = w.spent.raised(s)
		w.ledger = w.ledger.raised(s)
	}
}

// known returns what the shared counters must have at least, without what this
// process will add to them by itself. Once they have answered it is what they
// said: the ledger has what other gateways are still to add, and would count it
// twice. Before, nobody may have told them, and the ledger is all there is.
func (w window) sharedFloor() Spent {
	if w.synced {
		return w.shared
	}
	return w.ledger.minus(w.own.minus(w.confirmed))
}

// hear takes in a shared counter. Answers may come in any order: what is not in
// this one is counted from what this one has counted.
func (a *budgetWindows) updateShared(index int, h SharedCounter) {
	if w := a.at(index); w != nil {
		w.synced = true
		w.confirmed = w.confirmed.raised(h.Own)
		w.shared = w.shared.raised(h.Sum)
		w.spent = w.spent.raised(h.Sum.plus(w.own.minus(h.Own)))
	}
}

// most bounds sums, far above any budget and far below an overflow, so that two
// of them can be added.
const maxSum = 1 << 61

func (s Spent) plus(o Spent) Spent {
	return Spent{Tokens: min(s.Tokens+min(max(0, o.Tokens), maxSum), maxSum), Money: min(s.Money+min(max(0, o.Money), maxSum), maxSum)}
}

func (s Spent) minus(o Spent) Spent {
	return Spent{Tokens: max(0, s.Tokens-o.Tokens), Money: max(0, s.Money-o.Money)}
}

func (s Spent) raised(o Spent) Spent {
	return Spent{Tokens: max(s.Tokens, min(o.Tokens, maxSum)), Money: max(s.Money, min(o.Money, maxSum))}
}
