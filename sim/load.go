package sim

import "time"

// Burst is requests that come all at one moment.
type Burst struct {
	At    time.Duration
	Count int
	Make  func(d *RNG, n int) Request // the n-th, from 0 on
}

// Start plans the burst.
func (b Burst) Start(w *World, d *RNG) {
	w.At(b.At, func() {
		for n := range b.Count {
			w.Submit(b.Make(d, n))
		}
	})
}

// Poisson is requests that come independently of each other and of how the ones
// before them went.
type Poisson struct {
	Rate        float64 // a second
	From, Until time.Duration
	Make        func(d *RNG, n int) Request // the n-th, from 0 on
}

// Start plans the first request; each plans the next.
func (p Poisson) Start(w *World, d *RNG) {
	mean := time.Duration(float64(time.Second) / p.Rate)
	n := 0
	var come func()
	come = func() {
		if w.Now() > p.Until {
			return
		}
		r := p.Make(d, n)
		n++
		w.After(d.Exp(mean), come)
		w.Submit(r)
	}
	w.At(p.From+d.Exp(mean), come)
}

// Closed is clients of which each has one request on its way all the time: the
// next one comes as soon as the last one has ended.
type Closed struct {
	Clients     int
	From, Until time.Duration
	Make        func(d *RNG, n int) Request // the n-th of all clients, from 0 on
}

// Start plans each client's first request.
func (c Closed) Start(w *World, d *RNG) {
	n := 0
	var ask func()
	ask = func() {
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
			w.After(0, ask)
		}
		w.Submit(r)
	}
	for range c.Clients {
		w.At(c.From, ask)
	}
}
