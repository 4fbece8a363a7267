package queue

import (
	"slices"
	"time"

	"tierway/routing"
)

// downLocked puts out tickets that have waited for long enough while no worker is up.
func (q *Queue) downLocked(now time.Time) {
	if q.pool.Up(now) {
		q.downSince = time.Time{}
		return
	}
	if q.downSince.IsZero() {
		q.downSince = now
	}
	for i := range q.classes {
		for t, newer := q.classes[i].all.first, (*Ticket)(nil); t != nil; t = newer {
			newer = t.links[inClass].after
			if now.Sub(later(q.downSince, t.since)) < q.patience(t) {
				break // later ones have waited no longer
			}
			q.putOutLocked(t, q.shedLocked(t, ShedEngine, now), now)
		}
	}
}

// patience is how long a ticket waits for a worker that could take it to come up.
func (q *Queue) patience(t *Ticket) time.Duration {
	if len(t.Tried) > 0 {
		return graceWhenDown
	}
	return max(q.config.Load().EngineWait, graceWhenDown)
}

// noteLostLocked notes since when no worker that is up could take a waiting ticket.
func (q *Queue) noteLostLocked(t *Ticket, lost bool, now time.Time) {
	switch {
	case lost && t.lostAt.IsZero() && t.state == stateWaiting:
		t.lostAt, t.lostIndex = now, len(q.lost)
		q.lost = append(q.lost, t)
	case !lost && !t.lostAt.IsZero():
		t.lostAt = time.Time{}
		last := q.lost[len(q.lost)-1]
		q.lost[t.lostIndex], last.lostIndex = last, t.lostIndex
		q.lost[len(q.lost)-1] = nil
		q.lost = q.lost[:len(q.lost)-1]
	}
}

// offerLostLocked offers tickets whose patience is over once more, because a worker may have
// come up since. Those that are still lost are put out.
func (q *Queue) offerLostLocked(round *routing.Round, now time.Time) {
	var room [maxLost]*Ticket
	due := room[:0]
	for _, t := range q.lost {
		if len(due) < maxLost && now.Sub(t.lostAt) >= q.patience(t) {
			due = append(due, t)
		}
	}
	slices.SortFunc(due, func(a, b *Ticket) int { return int(int64(a.seq) - int64(b.seq)) })
	for _, t := range due {
		switch err := q.offerLocked(round, t, [Classes - 1]step{}, now); {
		case lost(t, err, q.untilLocked(t)):
			q.outs = append(q.outs, t)
		case err != nil:
			q.noteLostLocked(t, false, now)
		}
	}
}

// untilLocked is until when a ticket may wait: its class's wait, or for a worker to come up,
// and no longer than its deadline.
func (q *Queue) untilLocked(t *Ticket) time.Time { return q.untilUnderLocked(q.config.Load(), t) }

// untilUnderLocked is untilLocked under the bounds of c.
func (q *Queue) untilUnderLocked(c *Config, t *Ticket) time.Time {
	until := t.entered.Add(c.MaxWait[t.Class])
	if since := later(q.downSince, t.lostAt); !since.IsZero() && len(t.Tried) == 0 {
		until = later(until, later(since, t.since).Add(c.EngineWait))
	}
	if !t.Deadline.IsZero() && t.Deadline.Before(until) {
		return t.Deadline
	}
	return until
}

// lateLocked is the reason for which a late ticket is shed.
func (q *Queue) lateLocked(t *Ticket) string {
	if !q.downSince.IsZero() || !t.lostAt.IsZero() {
		return ShedEngine
	}
	return ShedWait
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
