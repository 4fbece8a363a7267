package sim

import (
	"errors"
	"slices"
	"time"

	"tierway/queue"
	"tierway/routing"
)

// door is what stands between clients and engines.
type admission interface {
	enter(f *inflight)                     // ends in World.send or World.refuse, now or later
	abandon(f *inflight)                   // its client is gone while it waits
	settleUsage(f *inflight, tokens int64) // it was answered, with so many tokens in all
	dispatch()                             // something may let one go that waits
	waiting() int
}

// direct lets everything through.
type directAdmission struct{ world *World }

func (d *directAdmission) enter(f *inflight) {
	lease, err := d.world.pool.Acquire(&f.route)
	if err != nil {
		d.world.refuse(f, err)
		return
	}
	d.world.send(f, lease)
}

func (d *directAdmission) abandon(*inflight)            {}
func (d *directAdmission) settleUsage(*inflight, int64) {}
func (d *directAdmission) dispatch()                    {}
func (d *directAdmission) waiting() int                 { return 0 }

// line is a first-in first-out line before all engines: what a gateway without
// classes, shares and places would hold. Its head goes to whichever worker frees
// a place, and blocks all others while none does.
type fifoAdmission struct {
	world           *World
	waitingRequests []*inflight
}

func (l *fifoAdmission) waiting() int { return len(l.waitingRequests) }

func (l *fifoAdmission) enter(f *inflight) {
	l.waitingRequests = append(l.waitingRequests, f)
	l.dispatch()
	if f.settled {
		return
	}
	f.record.Waited, f.record.WaitedSince = true, l.world.now
	wait := l.world.config.Queue.MaxWait[f.record.Request.Class]
	l.world.After(wait, func() {
		if !f.settled {
			l.abandon(f)
			l.world.refuse(f, &queue.ShedError{Reason: queue.ShedWait, RetryAfter: time.Second})
		}
	})
}

func (l *fifoAdmission) dispatch() {
	for len(l.waitingRequests) > 0 {
		f := l.waitingRequests[0]
		f.route.Now = l.world.time(l.world.now)
		lease, err := l.world.pool.Acquire(&f.route)
		if errors.Is(err, routing.ErrFull) {
			return
		}
		l.waitingRequests = l.waitingRequests[1:]
		if err != nil {
			l.world.refuse(f, err)
			continue
		}
		l.world.send(f, lease)
	}
}

func (l *fifoAdmission) abandon(f *inflight) {
	l.waitingRequests = slices.DeleteFunc(l.waitingRequests, func(g *inflight) bool { return g == f })
}

func (l *fifoAdmission) settleUsage(*inflight, int64) {}
