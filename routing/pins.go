package routing

import (
	"slices"
	"time"
)

// pins are the workers of the sessions that had a request while some worker of the pool was not a candidate. A
// session that was placed elsewhere thus stays where its cache is, after all workers are candidates again. Gateways
// agree on pins by the order of their shared log: the first change of a pin counts.
//
// The zero value has no pins. Memory is bounded by maxPins.
type pins struct {
	slots          []pin
	byKey          map[uint64]int32
	newest, oldest int32
	waiting        []pinEntry // entries for TakeJournal
	sent           []pinEntry // taken by TakeJournal, and not yet confirmed
}

type pin struct {
	key          uint64
	worker       uint64 // hash of its ID
	logged       uint64 // the worker by the log; 0 if the log has none
	expected     uint64 // the same, once the log has the entries of this gateway that it lacks
	unlogged     int    // number of those entries
	at           time.Time
	publishedAt  time.Time // when it was last written to the journal
	newer, older int32
}

type pinEntry struct {
	key, before, worker uint64
	renewal             bool
}

const (
	// maxPins bounds the sessions with a pin: 6 MB.
	maxPins = 1 << 16
	// pinIdle is how long a pin outlives the last request of its session, and renewPin the interval at which a
	// pin in use is published again, so that the log always has the pins in use.
	pinIdle  = 30 * time.Minute
	renewPin = 2 * time.Minute
)

// findPin returns the pin of a session, or nil.
func (s *pins) findPin(key uint64, now time.Time) *pin {
	i, ok := s.byKey[key]
	if !ok || now.Sub(s.slots[i].at) > pinIdle {
		return nil
	}
	return &s.slots[i]
}

// touchPin returns the session's pin, a new one without a worker if there is none, as the most recently used one.
func (s *pins) touchPin(key uint64, now time.Time) *pin {
	i, ok := s.byKey[key]
	switch {
	case ok:
		s.unlink(i)
		if now.Sub(s.slots[i].at) > pinIdle {
			s.slots[i] = pin{key: key}
		}
	case len(s.byKey) >= maxPins:
		i = s.oldest
		s.unlink(i)
		delete(s.byKey, s.slots[i].key)
		s.slots[i] = pin{key: key}
	default:
		if s.byKey == nil {
			s.byKey, s.slots = map[uint64]int32{}, make([]pin, 1)
		}
		i = int32(len(s.slots))
		s.slots = append(s.slots, pin{key: key})
	}
	p := &s.slots[i]
	s.byKey[key] = i
	p.at, p.newer, p.older = now, 0, s.newest
	if s.newest == 0 {
		s.oldest = i
	} else {
		s.slots[s.newest].newer = i
	}
	s.newest = i
	return p
}

// unlink takes a slot out of the list. Slot 0 is no slot.
func (s *pins) unlink(i int32) {
	p := &s.slots[i]
	if p.newer == 0 {
		s.newest = p.older
	} else {
		s.slots[p.newer].older = p.older
	}
	if p.older == 0 {
		s.oldest = p.newer
	} else {
		s.slots[p.older].newer = p.newer
	}
}

// confirmSent records that the log has the pins that were sent, after all entries that were applied before.
func (s *pins) confirmSent() {
	for _, t := range s.sent {
		i, ok := s.byKey[t.key]
		if !ok {
			continue
		}
		p := &s.slots[i]
		p.applyEntry(t.before, t.worker, t.renewal)
		if !t.renewal {
			p.unlogged = max(0, p.unlogged-1)
		}
		p.followLog()
	}
	s.sent = s.sent[:0]
}

// applyEntry applies an entry of the log. A change counts if the log has no pin of the session, or has the worker
// that the change replaces. A renewal always counts. So all gateways have the same pins, whatever they do at the same
// time.
func (p *pin) applyEntry(before, to uint64, renewal bool) {
	if renewal || p.logged == before || p.logged == 0 {
		p.logged = to
	}
}

// followLog sets the worker to that of the log, unless it lacks entries of this gateway.
func (p *pin) followLog() {
	if p.unlogged == 0 {
		p.worker, p.expected = p.logged, p.logged
	}
}

// isPinned reports whether the request has a key by which it can be pinned.
func (p *Pool) isPinned(r *Request) bool {
	return p.facts&usesPins != 0 && r.Key != 0 && !r.prefill && (r.KeyOf == KeySession || r.KeyOf == KeyHeader)
}

// setPinLocked sets the request's pinned worker, if that is among ws.
func (p *Pool) setPinLocked(r *Request, ws []View) {
	r.pinned = 0
	if !p.isPinned(r) {
		return
	}
	pin := p.pins.findPin(r.Key, r.Now)
	for i := range ws {
		if pin != nil && p.workers[ws[i].Index].idHash == pin.worker {
			r.pinned = i + 1
		}
	}
}

// keepPinLocked pins the session of a request that is booked on w, if it is pinned already or if some worker that
// could take it at another time was not among ws. A pin to a drained worker stays: the session returns after the drain.
func (p *Pool) keepPinLocked(r *Request, w *Worker, ws []View) {
	if !p.isPinned(r) || p.pins.findPin(r.Key, r.Now) == nil && !p.someAbsentLocked(r, ws) {
		return
	}
	pin := p.pins.touchPin(r.Key, r.Now)
	switch {
	case pin.worker != w.idHash && !p.isDrainedLocked(pin.worker):
		pin.worker = w.idHash
		p.publishPinLocked(pin, r.Now)
	case r.Now.Sub(pin.publishedAt) > renewPin:
		p.renewPinLocked(pin, r.Now)
	}
}

// isDrainedLocked reports whether the worker with that hash has the weight 0.
func (p *Pool) isDrainedLocked(idHash uint64) bool {
	return slices.ContainsFunc(p.workers, func(w *Worker) bool { return w.idHash == idHash && w.weight == 0 })
}

// someAbsentLocked reports whether some worker of the groups and regions shown serves the model, and is not among ws.
func (p *Pool) someAbsentLocked(r *Request, ws []View) bool {
	group, farthest := ws[0].Group, 0
	for i := range ws {
		farthest = max(farthest, r.distance(p.workers[ws[i].Index]))
	}
	candidates := 0
	for _, w := range p.workers {
		if w.weight > 0 && w.group <= group && w.servesAny(r.stages()) && serves(w.models, r.Model) &&
			r.distance(w) <= farthest {
			candidates++
		}
	}
	return candidates > len(ws)
}

// applyPinLocked applies an entry of the log.
func (p *Pool) applyPinLocked(key, before, to uint64, renewal bool, now time.Time) {
	if p.facts&usesPins == 0 || key == 0 {
		return
	}
	pin := p.pins.touchPin(key, now)
	pin.publishedAt = now
	pin.applyEntry(before, to, renewal)
	pin.followLog()
}
