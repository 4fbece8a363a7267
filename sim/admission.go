package sim

import (
	"errors"
	"slices"
	"time"

	"tierway/queue"
	"tierway/routing"
)

// admission admits requests to the engines, at once or after a wait.
type admission interface {
	enter(f *inflight)                     // takes a new request: calls Simulation.send or Simulation.refuse, now or later
	abandon(f *inflight)                   // the client leaves during the wait
	settleUsage(f *inflight, tokens int64) // the request ended after that number of tokens in total
	dispatch()                             // dispatches waiting requests, after a change of the pool or the time
	waiting() int
}

// directAdmission admits every request at once.
type directAdmission struct{ gateway *gateway }

func (d *directAdmission) enter(f *inflight) {
	w := d.gateway.simulation
	w.current = f
	lease, err := d.gateway.pool.Acquire(&f.route)
	w.current = nil
	if err != nil {
		w.refuse(f, err)
		return
	}
	w.send(f, lease)
}

func (d *directAdmission) abandon(*inflight)            {}
func (d *directAdmission) settleUsage(*inflight, int64) {}
func (d *directAdmission) dispatch()                    {}
func (d *directAdmission) waiting() int                 { return 0 }

// fifoAdmission is one first-in first-out queue for all engines, as in a gateway without classes, shares
// and queueing for a specific worker. Its first request goes to any worker with a free slot. While there
// is none, all requests wait.
type fifoAdmission struct {
	gateway         *gateway
	waitingRequests []*inflight
}

func (l *fifoAdmission) waiting() int { return len(l.waitingRequests) }

func (l *fifoAdmission) enter(f *inflight) {
	w := l.gateway.simulation
	l.waitingRequests = append(l.waitingRequests, f)
	l.dispatch()
	if f.settled {
		return
	}
	f.record.Waited, f.record.WaitedSince = true, w.now
	wait := w.config.Queue.MaxWait[f.record.Request.Class]
	w.After(wait, func() {
		if !f.settled {
			l.abandon(f)
			w.refuse(f, &queue.ShedError{Reason: queue.ShedWait, RetryAfter: time.Second})
		}
	})
}

func (l *fifoAdmission) dispatch() {
	w := l.gateway.simulation
	for len(l.waitingRequests) > 0 {
		f := l.waitingRequests[0]
		f.route.Now = w.time(w.now)
		lease, err := l.gateway.pool.Acquire(&f.route)
		if errors.Is(err, routing.ErrFull) {
			return
		}
		l.waitingRequests = l.waitingRequests[1:]
		if err != nil {
			w.refuse(f, err)
			continue
		}
		w.send(f, lease)
	}
}

func (l *fifoAdmission) abandon(f *inflight) {
	l.waitingRequests = slices.DeleteFunc(l.waitingRequests, func(g *inflight) bool { return g == f })
}

func (l *fifoAdmission) settleUsage(*inflight, int64) {}
