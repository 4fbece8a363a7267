package routing

import "time"

// beginStreamLocked counts a stream whose answer has begun. An engine answers as many streams at
// once as it has slots; other streams wait inside it. The largest number of this gateway's
// streams that it has answered at once is the estimate of this gateway's slots.
func (w *Worker) beginStreamLocked(b *booking) {
	if b.stream && !b.answering {
		b.answering = true
		w.answering++
		w.slots = max(w.slots, w.answering)
	}
}

// queueTimeLocked predicts how long a stream that is booked now waits for a slot, if answers have
// the usual length and the peers' speed.
func (p *Pool) queueTimeLocked(w *Worker) time.Duration {
	waiting := w.streams - w.slots
	if waiting <= 0 || w.slots == 0 {
		return 0
	}
	answer := p.learned.output.value(outputLimits.prior) * w.prior[tokenTime]
	return min(maxPrefill, seconds(answer*float64(waiting)/float64(w.slots)))
}
