package sim

import "time"

// Burst is a number of requests at one moment.
type Burst struct {
	At    time.Duration
	Count int
	Make  func(d *RNG, n int) Request // the n-th request, from 0 on
}

// Start plans the burst.
func (b Burst) Start(w *Simulation, d *RNG) {
	w.At(b.At, func() {
		for n := range b.Count {
			w.Submit(b.Make(d, n))
		}
	})
}

// Poisson is a stream of independent requests with a mean rate.
type Poisson struct {
	Rate        float64 // per second
	From, Until time.Duration
	Make        func(d *RNG, n int) Request // the n-th request, from 0 on
}

// Start plans the first request; each plans the next.
func (p Poisson) Start(w *Simulation, d *RNG) {
	mean := time.Duration(float64(time.Second) / p.Rate)
	n := 0
	var arrive func()
	arrive = func() {
		if w.Now() > p.Until {
			return
		}
		r := p.Make(d, n)
		n++
		w.After(d.Exp(mean), arrive)
		w.Submit(r)
	}
	w.At(p.From+d.Exp(mean), arrive)
}

// Closed is a number of clients with one request in flight each. A client sends its next request as soon as
// its last one has ended.
type Closed struct {
	Clients     int
	From, Until time.Duration
	Make        func(d *RNG, n int) Request // the n-th request of all clients, from 0 on
}

// Start plans each client's first request.
func (c Closed) Start(w *Simulation, d *RNG) {
	n := 0
	var submit func()
	submit = func() {
		if w.Now() > c.Until {
			return
		}
		r := c.Make(d, n)
		n++
		done := r.Done
		r.Done = func(rec *Record) {
			if done != nil {
				done(rec)
			}
			w.After(0, submit)
		}
		w.Submit(r)
	}
	for range c.Clients {
		w.At(c.From, submit)
	}
}
