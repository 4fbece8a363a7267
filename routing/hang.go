package routing

import (
	"slices"
	"time"
)

// hangEvidence is what shows that a worker hangs: its overdue requests, and the answers of its peers.
type hangEvidence struct {
	unanswered bool // see WorkerView.Unanswered

	found time.Time // when it was found to hang; zero once it has sent something, or its engine's counters have moved
	ended []silence // cut when they were overdue; at most endedKept
	// answered has the last answers of the worker, as evidence about its peers.
	answered [hangRequests]answerSeen
	next     int // index in answered
	// tenants has the last answer of each of the last two tenants. In answered, those of one busy tenant can
	// displace all others.
	tenants [2]answerSeen
}

// answerSeen is a request that a worker has answered.
type answerSeen struct {
	tenant, prompt uint64
	began          time.Time
}

const (
	// hangRequests is the number of overdue requests, and of later requests that peers answered, from which on a
	// worker counts as hung. A single slow request says nothing about its worker.
	hangRequests = 3
	// hangWindow is the greatest age of a request that counts. It suffices for a worker that receives one in
	// 100 s.
	hangWindow = 5 * time.Minute
	// peerBeganLater is how much later a request of a peer must have begun. The requests of one burst wait for the
	// same prefills, so that those of one worker may be answered just before those of another.
	peerBeganLater = time.Second
	// hangOneTenant is the time after which the silent requests of a single tenant count although the
	// peers answer only other tenants. Until then the tenant's prompts may be slow on a healthy worker.
	// Later, the tenant may be the only one that uses a worker that hangs.
	hangOneTenant = time.Minute
	// unansweredAfter is the silence after which an overdue request may move to a peer although too few requests
	// prove a hang. It leaves a client with a time limit of 12 s some time for the peer's answer.
	unansweredAfter = 8 * time.Second
	// detectGap is the longest time between two calls of DetectHangs after which silence counts. After a longer one,
	// this process was stopped or lacked processor time.
	detectGap = 3 * time.Second
	// hangWithoutPeersAfter is the further silence after which overdue requests count without an answer of a peer:
	// ten times overdueFloor.
	hangWithoutPeersAfter = 30 * time.Second
	// endedKept is the largest number of cut requests that are kept for a worker: the first and the
	// newest. It leaves room for a second tenant beside one that sends most requests.
	endedKept = 32
	// stalledAfter is the time for which an engine's step counters may stand still while requests
	// run. One step takes up to a few seconds on the largest models.
	stalledAfter = 10 * time.Second
	// lastByteGrace is the time for which bytes may arrive after the engine's counters have stopped: the
	// last bytes were already on their way.
	lastByteGrace = time.Second
)

// addEnded keeps a request that was overdue when it was cut at now.
func (h *hangEvidence) addEnded(s silence, now time.Time) {
	h.ended = slices.DeleteFunc(h.ended, func(s silence) bool { return now.Sub(s.began) >= hangWindow })
	if len(h.ended) == endedKept {
		h.ended = slices.Delete(h.ended, 1, 2)
	}
	h.ended = append(h.ended, s)
}

// addAnswer records a request that the worker has answered.
func (h *hangEvidence) addAnswer(s *silence) {
	a := answerSeen{s.tenant, s.prompt, s.began}
	h.answered[h.next] = a
	h.next = (h.next + 1) % len(h.answered)
	if h.tenants[0].tenant != a.tenant {
		h.tenants[1] = h.tenants[0]
	}
	h.tenants[0] = a
}

// DetectHangs finds the workers that accept requests and send nothing. WorkerView.HungAt and WorkerView.Unanswered
// have the result. The owner of the pool calls it once a second. After more than detectGap it restarts the silence of
// all workers, because this process has read nothing meanwhile.
func (p *Pool) DetectHangs(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	paused := !p.detectedAt.IsZero() && now.Sub(p.detectedAt) > detectGap
	p.detectedAt = now
	for _, w := range p.workers {
		if paused && w.silences.hang.found.IsZero() {
			w.silences.restartLocked(now)
		}
		h := &w.silences.hang
		from := w.silences.fromLocked()
		if from.After(h.found) || w.status.SteppedAt.After(h.found) {
			h.found = time.Time{}
		}
		var silent bool
		silent, h.unanswered = p.silentBesidePeersLocked(w, now, from)
		silent = silent && !w.stepsLocked(now)
		if h.found.IsZero() && (silent || w.stalledLocked(from)) && !w.excusedLocked(now, from) {
			h.found = now
		}
	}
}

// stalledLocked reports whether the engine's step counters stand still although requests run. Requests run if the
// engine reports it, or if the gateway has two requests with different prompts that are older than the last step:
// vLLM publishes only after steps, and one request may wait for something else, such as an image. Counters prove
// nothing after a later byte, or while the worker is half-open.
func (w *Worker) stalledLocked(from time.Time) bool {
	st, since := &w.status, w.status.StalledSince
	if st.SteppedAt.IsZero() && since.IsZero() || w.ejected && w.ejection.Until.IsZero() {
		return false
	}
	if since.IsZero() {
		if since = w.secondSilentLocked(from); since.IsZero() {
			return false
		}
		if st.SteppedAt.After(since) {
			since = st.SteppedAt
		}
	}
	return st.LoadAt.Sub(since) >= stalledAfter && !from.After(since.Add(lastByteGrace))
}

// secondSilentLocked returns since when two requests with different prompts have no byte, or the zero time.
func (w *Worker) secondSilentLocked(from time.Time) time.Time {
	var first, second *silence
	for _, b := range w.silences.waiting {
		s := &b.silence
		switch {
		case first == nil || s.began.Before(first.began):
			if first != nil && first.prompt != s.prompt {
				second = first
			}
			first = s
		case s.prompt != first.prompt && (second == nil || s.began.Before(second.began)):
			second = s
		}
	}
	if second == nil {
		return time.Time{}
	}
	return second.silentFrom(from)
}

// overdueRequestsLocked returns the overdue requests of a worker that has been silent since from, the newest
// first. began is the beginning of their silence.
func (w *Worker) overdueRequestsLocked(now, from time.Time) (overdue []silence) {
	add := func(s silence) {
		s.began = s.silentFrom(from)
		overdue = append(overdue, s)
	}
	for _, b := range w.silences.waiting {
		if w.requestOverdueLocked(&b.silence, now, from) && now.Sub(b.silence.began) < hangWindow {
			add(b.silence)
		}
	}
	for _, s := range w.silences.hang.ended {
		if !s.began.Before(from) && now.Sub(s.began) < hangWindow {
			add(s)
		}
	}
	slices.SortFunc(overdue, func(a, b silence) int { return b.began.Compare(a.began) })
	return overdue
}

// silentBesidePeersLocked reports whether several of the worker's requests are overdue while its peers have
// answered as many requests that began later. If the peers answer other tenants, the overdue requests must
// belong to two tenants, or be older than hangOneTenant. If the peers have answered nothing since, requests
// with different prompts count after hangWithoutPeersAfter.
//
// unanswered reports whether a request may go to another worker after unansweredAfter without a proven hang. Either
// the peers have answered hangRequests later requests; or the worker sent something within hangWindow before, and no
// step and no other request explains the silence. An engine that was idle for longer may be loading its model.
func (p *Pool) silentBesidePeersLocked(w *Worker, now, from time.Time) (hung, unanswered bool) {
	if now.Sub(from) < overdueFloor || len(w.silences.waiting)+len(w.silences.hang.ended) == 0 {
		return false, false
	}
	overdue := w.overdueRequestsLocked(now, from)
	if len(overdue) == 0 {
		return false, false
	}
	var answered, tenants []answerSeen
	for _, peer := range p.workers {
		if peer != w {
			h := &peer.silences.hang
			answered, tenants = append(answered, h.answered[:]...), append(tenants, h.tenants[:]...)
		}
	}
	steps := !w.status.SteppedAt.IsZero()
	hung, unanswered = provesHang(overdue, answered, tenants, steps, now)
	if oldest := &overdue[len(overdue)-1]; !unanswered && oldest.mayGoElsewhere(steps, now) {
		last := w.silences.lastByteAt()
		unanswered = !last.IsZero() && oldest.began.Sub(last) < hangWindow && !w.stepsLocked(now) &&
			!w.excusedLocked(now, from)
	}
	return hung, unanswered
}

// mayGoElsewhere reports whether an overdue request has been silent for long enough to go to another worker without a
// proven hang. Without step counters, a whole answer may only be longer than all recent ones.
func (s *silence) mayGoElsewhere(steps bool, now time.Time) bool {
	if !s.stream && !steps {
		return now.Sub(s.began) >= s.overdueAfter+hangWithoutPeersAfter
	}
	return now.Sub(s.began) >= unansweredAfter
}

// provesHang compares overdue requests, newest first, with the last answers of the peers: all, and of each
// tenant. See silentBesidePeersLocked for its results.
func provesHang(overdue []silence, answered, tenants []answerSeen, steps bool, now time.Time) (hung, unanswered bool) {
	var prompts []uint64 // that count
	severalTenants, alone := false, 0
	for i := range overdue {
		s := &overdue[i]
		severalTenants = severalTenants || s.tenant != overdue[0].tenant
		later := func(a answerSeen) bool { return !a.began.Before(s.began.Add(peerBeganLater)) }
		same := func(a answerSeen) bool { return a.prompt == s.prompt && later(a) }
		// A repeated prompt counts once, because the prompt itself may be slow. It counts each time
		// if a peer has answered it.
		first := !slices.Contains(prompts, s.prompt)
		if first || slices.ContainsFunc(answered, same) {
			prompts = append(prompts, s.prompt)
		}
		n := 0
		for _, a := range answered {
			if later(a) {
				n++
			}
		}
		unanswered = unanswered || n >= hangRequests && s.mayGoElsewhere(steps, now)
		if n == 0 && first && now.Sub(s.began) >= s.overdueAfter+hangWithoutPeersAfter {
			alone++
		}
		others := func(a answerSeen) bool { return a.tenant != s.tenant && later(a) }
		oneTenant := !severalTenants && slices.ContainsFunc(tenants, others)
		if len(prompts) < hangRequests || oneTenant && now.Sub(s.began) < hangOneTenant {
			continue
		}
		if n >= hangRequests || alone >= hangRequests {
			return true, true
		}
	}
	return false, unanswered
}
