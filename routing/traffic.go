package routing

import (
	"math"
	"time"
)

// traffic is the measured traffic of a pool: exponential means over the last 20 seconds, or the last
// hundred requests.
type traffic struct {
	at       time.Time
	arrivals float64 // per second
	busy     float64 // share of the workers with a prefill to do
	cached   average // cached tokens of a request
	reuse    average // seconds from the last use of a conversation to its next turn
}

const (
	trafficMemory = 20 * time.Second
	// reuseGaps is the age, in mean times between two turns, up to which a conversation counts as
	// part of the working set.
	reuseGaps = 3
)

// average is an exponential mean of the last hundred samples.
type average struct {
	mean    float64
	samples int
}

func (a *average) learn(x float64) {
	a.samples++
	a.mean += (x - a.mean) / float64(min(a.samples, 100))
}

// advanceTrafficLocked advances the means to now. The caller calls it before each change of the prefills.
func (p *Pool) advanceTrafficLocked(now time.Time) {
	t := &p.traffic
	passed := now.Sub(t.at)
	if t.at.IsZero() || passed <= 0 {
		if t.at.IsZero() {
			t.at = now
		}
		return
	}
	up, busy := 0, 0
	for _, w := range p.workers {
		if w.status.Up && w.weight > 0 {
			up++
			if w.costs.first != nil || w.others.reported.prefill > 0 {
				busy++
			}
		}
	}
	keep := math.Exp(-passed.Seconds() / trafficMemory.Seconds())
	t.arrivals *= keep
	if up > 0 {
		t.busy += (float64(busy)/float64(up) - t.busy) * (1 - keep)
	}
	t.at = now
}

// countArrivalLocked counts a request that is booked now.
func (p *Pool) countArrivalLocked(now time.Time) {
	p.advanceTrafficLocked(now)
	p.traffic.arrivals += 1 / trafficMemory.Seconds()
}

// arrivalsLocked returns the requests per second of all gateways.
func (p *Pool) arrivalsLocked() float64 {
	if p.others.reported {
		return p.traffic.arrivals + p.others.arrivals
	}
	return p.traffic.arrivals * float64(1+p.others.count)
}

func (p *Pool) trafficLocked() Traffic {
	up := 0
	for _, w := range p.workers {
		if w.status.Up && w.weight > 0 {
			up++
		}
	}
	return Traffic{
		Arrivals:    p.arrivalsLocked() / float64(max(1, up)),
		Utilization: p.traffic.busy,
		Cached:      p.traffic.cached.mean,
		Queueing:    p.times.queueing(),
	}
}
