package sim

import (
	"errors"
	"slices"
	"time"

	"tierway/queue"
	"tierway/routing"
)

// door is what stands between clients and engines.
type door interface {
	enter(f *flight)                // ends in World.send or World.refuse, now or later
	leave(f *flight)                // its client is gone while it waits
	settle(f *flight, tokens int64) // it was answered, with so many tokens in all
	pass()                          // something may let one go that waits
	waiting() int
}

// direct lets everything through.
type direct struct{ world *World }

func (d *direct) enter(f *flight) {
	lease, err := d.world.pool.Acquire(&f.route)
	if err != nil {
		d.world.refuse(f, err)
		return
	}
	d.world.send(f, lease)
}

func (d *direct) leave(*flight)         {}
func (d *direct) settle(*flight, int64) {}
func (d *direct) pass()                 {}
func (d *direct) waiting() int          { return 0 }

// line is a first-in first-out line before all engines: what a gateway without
// classes, shares and places would hold. Its head goes to whichever worker frees
// a place, and blocks all others while none does.
type line struct {
	world   *World
	flights []*flight
}

func (l *line) waiting() int { return len(l.flights) }

func (l *line) enter(f *flight) {
	l.flights = append(l.flights, f)
	l.pass()
	if f.over {
		return
	}
	f.record.Waited, f.record.WaitedSince = true, l.world.now
	wait := l.world.config.Queue.MaxWait[f.record.Request.Class]
	l.world.After(wait, func() {
		if !f.over {
			l.leave(f)
			l.world.refuse(f, &queue.ShedError{Reason: queue.ShedWait, RetryAfter: time.Second})
		}
	})
}

func (l *line) pass() {
	for len(l.flights) > 0 {
		f := l.flights[0]
		f.route.Now = l.world.time(l.world.now)
		lease, err := l.world.pool.Acquire(&f.route)
		if errors.Is(err, routing.ErrFull) {
			return
		}
		l.flights = l.flights[1:]
		if err != nil {
			l.world.refuse(f, err)
			continue
		}
		l.world.send(f, lease)
	}
}

func (l *line) leave(f *flight) {
	l.flights = slices.DeleteFunc(l.flights, func(g *flight) bool { return g == f })
}

func (l *line) settle(*flight, int64) {}
