package sim

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"tierway/queue"
)

// couldTake reports whether the engine of that name serves the request's model.
func couldTake(r *Record, engines []Engine, name string) bool {
	i := slices.IndexFunc(engines, func(e Engine) bool { return e.Name == name })
	return r.Request.Model == 0 || len(engines[i].Models) == 0 || slices.Contains(engines[i].Models, r.Request.Model)
}

// orderConfig returns a random schedule: a few small engines, some of which do not serve all
// models, and three tenants. Their requests of all classes and sizes first arrive faster than
// they can be answered.
func orderConfig(seed uint64) Config {
	d := Split(seed, 0)
	c := Config{Seed: seed, Policy: leastLoad(), Queue: patient()}
	c.Queue.AgedShare = [...]float64{0, 0.05, 0.2, 0.5}[d.Below(4)]
	for class := range c.Queue.Age {
		c.Queue.Age[class] = time.Duration(d.Below(5)) * time.Second
	}
	for i := range 1 + d.Below(4) {
		e := Engine{Name: fmt.Sprint("e", i), MaxInflight: 1 + d.Below(3), Weight: 1 + d.Below(3)}
		if models := d.Below(4); models > 0 {
			e.Models = [][]uint64{{1}, {2}, {1, 2}}[models-1]
		}
		c.Engines = append(c.Engines, e)
	}
	c.Engines = append(c.Engines, Engine{Name: "all", MaxInflight: 1})
	c.Loads = []Load{Poisson{Rate: 2 + 6*d.Unit(), Until: 20 * time.Second, Make: func(d *RNG, n int) Request {
		r := Request{
			Tenant: fmt.Sprint("t", d.Below(3)), Weight: 1 + d.Below(2), Class: d.Below(queue.Classes),
			Model:        uint64(d.Below(3)),
			PromptTokens: 1 + int64(d.Lognormal(500, 1)), OutputTokens: 1 + int64(d.Lognormal(50, 1)),
		}
		if d.Below(10) == 0 {
			r.Patience = d.Exp(3 * time.Second)
		}
		return r
	}}}
	return c
}

// TestUrgentRequestsAreDispatchedFirst: no slot goes to a request while a more urgent one that
// could use it waits, unless a request of the lower class is aged. Within a tenant and class,
// requests are dispatched in order of arrival.
func TestUrgentRequestsAreDispatchedFirst(t *testing.T) {
	const schedules = 300
	waited, aged := 0, 0
	for seed := range uint64(schedules) {
		c := orderConfig(seed)
		c.Observer = func(w *Simulation, granted *Record) {
			if granted.Wait() > 0 {
				waited++
			}
			old := c.Queue.AgedShare > 0 && anyAged(w, c.Queue, granted)
			for _, other := range w.requests {
				// A request of this very moment may have arrived after the pass.
				if other.Ended || other.Dispatched() || !other.Waited || other.WaitedSince == w.now ||
					!couldTake(other, c.Engines, granted.Worker) {
					continue
				}
				switch mine, theirs := &granted.Request, &other.Request; {
				case theirs.Class < mine.Class && old:
					aged++
				case theirs.Class < mine.Class:
					t.Fatalf("schedule %d: at %s a request of class %d got a slot of %s that one of class %d could have had since %s",
						seed, w.now, mine.Class, granted.Worker, theirs.Class, other.WaitedSince)
				case theirs.Class == mine.Class && theirs.Tenant == mine.Tenant && other.Number < granted.Number:
					t.Fatalf("schedule %d: at %s request %d of %s preceded request %d", seed, w.now, granted.Number, mine.Tenant,
						other.Number)
				}
			}
		}
		play(t, c)
	}
	if waited < 10*schedules || aged < schedules {
		t.Errorf("only %d grants came after a wait, and %d went before more urgent ones because they were aged", waited, aged)
	}
}

// anyAged reports whether the dispatched request, or one of its class that waits or was
// dispatched with it, is aged.
func anyAged(w *Simulation, q queue.Config, granted *Record) bool {
	age := q.Age[granted.Request.Class]
	return age > 0 && slices.ContainsFunc(w.requests, func(r *Record) bool {
		return r.Request.Class == granted.Request.Class && !r.Ended && r.Waited &&
			(!r.Dispatched() || r.DispatchedAt == w.now) && w.now-r.Arrived >= age
	})
}
