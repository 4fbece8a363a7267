package liveness

// fault is a way in which a worker stops answering.
type fault struct {
	name       string
	begin, end func(p *process) error
	idle       bool // it begins while the worker has no request
}

// faults are all faults; immutable.
var faults = []fault{
	// The loop of steps stands still while requests run. The HTTP server answers /health and /metrics,
	// whose gauges keep the values of the last step.
	{name: "hang-busy", begin: func(p *process) error {
		p.stop(func(g gauges) bool { return g.running > 0 })
		return nil
	}, end: resume},
	// The same while no request runs. vLLM publishes gauges after steps only, so /metrics reports no
	// running request from then on.
	{name: "hang-idle", idle: true, begin: func(p *process) error {
		p.stop(func(g gauges) bool { return g.running == 0 && g.waiting == 0 })
		return nil
	}, end: resume},
	// The process is stopped. The kernel accepts connections and requests; no path answers.
	{name: "frozen", begin: func(p *process) error {
		p.freeze()
		return nil
	}, end: func(p *process) error {
		p.thaw()
		return nil
	}},
	// vLLM's POST /sleep: requests wait, /health answers, and the metrics report the sleep.
	{name: "asleep", begin: func(p *process) error {
		p.update(func() { p.asleep = true })
		p.stop(nil)
		return nil
	}, end: func(p *process) error {
		p.update(func() { p.asleep = false })
		return resume(p)
	}},
	// New connections are refused. Open connections stay open and silent.
	{name: "closed", begin: func(p *process) error {
		p.refuse()
		p.freeze()
		return nil
	}, end: func(p *process) error {
		p.thaw()
		return p.open()
	}},
	// vLLM after SIGTERM: new connections are refused, and open connections still answer /health.
	{name: "closing", begin: func(p *process) error {
		p.refuse()
		p.stop(nil)
		return nil
	}, end: func(p *process) error {
		p.resume()
		return p.open()
	}},
}

func resume(p *process) error {
	p.resume()
	return nil
}

// faultNamed returns the fault with a name.
func faultNamed(name string) fault {
	for _, f := range faults {
		if f.name == name {
			return f
		}
	}
	panic("there is no fault " + name)
}
