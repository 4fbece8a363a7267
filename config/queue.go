package config

import (
	"cmp"
	"time"

	"tierway/queue"
	"tierway/routing"
)

// Queue says how requests wait. In a tier or pool, what is nil or a zero heartbeat
// is the file's value, key by key.
type Queue struct {
	MaxDepth       *int           `yaml:"max_depth"`  // requests of each class that may wait; 0: nobody waits
	MaxWait        ByClass        `yaml:"max_wait"`   // 0: nobody of the class waits
	Age            ByClass        `yaml:"age"`        // 0: the class never ages
	AgedShare      *float64       `yaml:"aged_share"` // 0 to less than 1
	MaxBytes       *Size          `yaml:"max_bytes"`  // 0: no bound
	Displace       *bool          `yaml:"displace"`
	EngineWait     *time.Duration `yaml:"engine_wait"` // 0: nobody waits for a worker to come up
	HeartbeatAfter time.Duration  `yaml:"heartbeat_after"`
}

// ByClass is a duration for each class. What is nil is inherited.
type ByClass struct {
	Interactive *time.Duration `yaml:"interactive"`
	Background  *time.Duration `yaml:"background"`
	Batch       *time.Duration `yaml:"batch"`
}

// Saturation says from which of its metrics on a worker gets no more requests. In a
// tier or pool, what is nil or zero is the file's value, key by key.
type Saturation struct {
	Waiting    *int          `yaml:"waiting"`  // requests in the engine's own queue; 0: never
	KVUsage    *float64      `yaml:"kv_usage"` // part of the engine's cache that is in use; 0: never
	StaleAfter time.Duration `yaml:"stale_after"`
}

// defaultQueue is how requests wait where nobody says otherwise.
func defaultQueue() Queue {
	return Queue{
		// What a pool of four busy engines answers in a minute or two.
		MaxDepth: new(1000),
		// People give up after ten seconds; nobody watches the other two, and
		// clients of the SDKs wait for ten minutes.
		MaxWait: ByClass{Interactive: new(10 * time.Second), Background: new(60 * time.Second), Batch: new(10 * time.Minute)},
		Age:     ByClass{Interactive: new(time.Duration(0)), Background: new(10 * time.Second), Batch: new(30 * time.Second)},
		// A fifth is felt by nobody above, and the lower classes move on.
		AgedShare: new(0.2),
		MaxBytes:  new(Size(256 << 20)), // eight bodies of the greatest length, or all of max_depth at 87 KB
		// Without it, one tenant's backlog refuses all other tenants of its class.
		Displace: new(true),
		// A client that tries again finds out sooner than one that waits for an
		// engine that takes minutes to load.
		EngineWait:     new(time.Duration(0)),
		HeartbeatAfter: 15 * time.Second, // proxies cut silent answers after 30 to 60 s
	}
}

// defaultSaturation is when a worker is full by its own metrics, where nobody says
// otherwise.
func defaultSaturation() Saturation {
	return Saturation{
		Waiting: new(5),   // its own queue is where classes and tenants mean nothing any more
		KVUsage: new(0.9), // above it engines begin to push running requests out
		// A worker takes in and gives out more than that queue in five seconds.
		StaleAfter: 5 * time.Second,
	}
}

// over returns the section with what it leaves out taken from base.
func (q Queue) over(base Queue) Queue {
	return Queue{
		MaxDepth: cmp.Or(q.MaxDepth, base.MaxDepth), MaxWait: q.MaxWait.over(base.MaxWait), Age: q.Age.over(base.Age),
		AgedShare: cmp.Or(q.AgedShare, base.AgedShare), MaxBytes: cmp.Or(q.MaxBytes, base.MaxBytes), Displace: cmp.Or(q.Displace, base.Displace),
		EngineWait: cmp.Or(q.EngineWait, base.EngineWait), HeartbeatAfter: cmp.Or(q.HeartbeatAfter, base.HeartbeatAfter),
	}
}

func (c ByClass) over(base ByClass) ByClass {
	return ByClass{Interactive: cmp.Or(c.Interactive, base.Interactive), Background: cmp.Or(c.Background, base.Background), Batch: cmp.Or(c.Batch, base.Batch)}
}

// over returns the section with what it leaves out taken from base.
func (s Saturation) over(base Saturation) Saturation {
	return Saturation{Waiting: cmp.Or(s.Waiting, base.Waiting), KVUsage: cmp.Or(s.KVUsage, base.KVUsage), StaleAfter: cmp.Or(s.StaleAfter, base.StaleAfter)}
}

// config returns the section as a queue takes it.
func (q Queue) config() queue.Config {
	return queue.Config{MaxDepth: value(q.MaxDepth), MaxBytes: int64(value(q.MaxBytes)), MaxWait: q.MaxWait.config(), Age: q.Age.config(),
		AgedShare: value(q.AgedShare), Displace: value(q.Displace), EngineWait: value(q.EngineWait)}
}

// config returns the durations in the order of the classes.
func (c ByClass) config() [queue.Classes]time.Duration {
	return [queue.Classes]time.Duration{value(c.Interactive), value(c.Background), value(c.Batch)}
}

// config returns the section as a pool takes it.
func (s Saturation) config() routing.Saturation {
	return routing.Saturation{Waiting: value(s.Waiting), KVUsage: value(s.KVUsage), StaleAfter: s.StaleAfter}
}

// value returns what p points at, and zero where it points at nothing.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
