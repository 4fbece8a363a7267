package sim

import "time"

// sharedState is what the other gateways have sent to a gateway, and it to them.
type sharedState struct {
	load  []byte // as last sent; nil before the first exchange
	inbox []journal
}

// journal is the journal of another gateway, in the order of the log that all share.
type journal struct {
	at   time.Duration
	text []byte
}

// startExchanges starts the exchanges of the gateways, each at its own phase of the interval.
func (w *Simulation) startExchanges() {
	if len(w.gateways) == 1 {
		return
	}
	for i, g := range w.gateways {
		g.pool.SetOtherGateways(w.time(w.now), len(w.gateways)-1) // there is no load to read
		if every := w.config.ShareEvery; every > 0 {
			g.pool.RecordJournal(true)
			g.pool.RepeatJournal(w.time(w.now)) // blocks of later prompts
			w.After(every*time.Duration(i)/time.Duration(len(w.gateways)), func() { w.repeat(every, g.exchangeState) })
		}
	}
}

// exchangeState sends the gateway's load and journal to the others, and applies what they have sent.
func (g *gateway) exchangeState() {
	w := g.simulation
	now := w.time(w.now)
	g.load = g.pool.AppendLoad(nil, now)
	text := g.pool.TakeJournal(nil)
	var loads [][]byte
	for _, other := range w.gateways {
		if other == g {
			continue
		}
		if len(text) > 0 {
			other.inbox = append(other.inbox, journal{w.now, text})
		}
		if other.load != nil {
			loads = append(loads, other.load)
		}
	}
	for _, j := range g.inbox {
		mustApply(g.pool.ApplyJournal(w.time(j.at), j.text))
	}
	g.inbox = g.inbox[:0]
	g.pool.ConfirmJournal()
	mustApply(g.pool.SetOtherGateways(now, len(w.gateways)-1, loads...))
}

// mustApply panics if a gateway cannot read what another one has written.
func mustApply(err error) {
	if err != nil {
		panic(err)
	}
}
