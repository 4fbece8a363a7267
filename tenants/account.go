package tenants

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

// at returns the window with that index. It creates one that is newer than one of the two, and
// returns nil for an older one.
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

// window returns the window with that index, or an empty one.
func (a *budgetWindows) window(index int) window {
	for i := range a {
		if a[i].index == index {
			return a[i]
		}
	}
	return window{}
}

// addUsage books the usage of a request of that window.
func (a *budgetWindows) addUsage(index int, u Spent) {
	if w := a.at(index); w != nil {
		w.own = w.own.plus(u)
		w.spent = w.spent.plus(u)
	}
}

// seed raises the known usage to the ledger's.
func (a *budgetWindows) seed(index int, s Spent) {
	if w := a.at(index); w != nil {
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
	if w := a.at(index); w != nil {
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
