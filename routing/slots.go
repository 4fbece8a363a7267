package routing

import "time"

// beginStreamLocked notes that a stream's answer has begun. An engine answers as many streams at
// once as it has slots, and lets others wait inside it. The most streams of this gateway
// that it has answered at once are taken for the slots that this gateway gets.
func (w *Worker) beginStreamLocked(b *booking) {
	if b.stream && !b.answering {
		b.answering = true
		w.answering++
		w.slots = max(w.slots, w.answering)
	}
}

// queueTimeLocked is how long a stream booked now should wait for a slot, if answers are
// the usual ones at the peers' speed.
func (p *Pool) queueTimeLocked(w *Worker) time.Duration {
	waiting := w.streams - w.slots
	if waiting <= 0 || w.slots == 0 {
		return 0
	}
	answer := p.learned.output.value(outputLimits.prior) * w.prior[tokenTime]
	return min(maxPrefill, seconds(answer*float64(waiting)/float64(w.slots)))
}
