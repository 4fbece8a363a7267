package config

import (
	"time"

	"tierway/queue"
	"tierway/routing"
)

// Queue says how requests wait. In a tier or pool, what is nil or a zero heartbeat
// is the file's value, key by key.
type Queue struct {
	MaxDepth       *int           `yaml:"max_depth" doc:"Requests of each class that may wait. One more is answered 503 'overloaded' with a Retry-After. 0: nobody waits."`
	MaxWait        ByClass        `yaml:"max_wait" doc:"How long a request may wait, by class; then it is answered 503 'overloaded'. '0s': nobody of the class waits."`
	Age            ByClass        `yaml:"age" doc:"How long a request waits, by class, before it may go as one of the class above it, and to any worker that is open instead of the best. '0s': the class never ages."`
	AgedShare      *float64       `yaml:"aged_share" below:"1" doc:"The greatest part of the tokens that aged requests of lower classes get while higher ones wait. 0: none, whatever their age."`
	MaxBytes       *Size          `yaml:"max_bytes" zero:"true" doc:"Bytes of all bodies that wait. 0 is no bound."`
	Displace       *bool          `yaml:"displace" doc:"A full queue evicts waiting requests for a new one. If the class is full, it evicts the newest request of the tenant with the largest backlog for its weight. If bytes are short, it evicts from less urgent classes first. 'false' rejects the new request instead."`
	EngineWait     *time.Duration `yaml:"engine_wait" zero:"true" doc:"How long a request waits for a worker while none is up, in place of 'max_wait' where it is longer. '0s': it is answered 503 'no_healthy_worker' at once."`
	HeartbeatAfter time.Duration  `yaml:"heartbeat_after" doc:"When a stream that has nothing to send yet is opened and kept alive with comments."`
}

// ByClass is a duration for each class. What is nil is inherited.
type ByClass struct {
	Interactive *time.Duration `yaml:"interactive" zero:"true" doc:"For interactive requests."`
	Background  *time.Duration `yaml:"background" zero:"true" doc:"For background requests."`
	Batch       *time.Duration `yaml:"batch" zero:"true" doc:"For batch requests."`
}

// Saturation says from which of its metrics on a worker gets no more requests. In a
// tier or pool, what is nil or zero is the file's value, key by key.
type Saturation struct {
	Waiting    *int          `yaml:"waiting" doc:"Requests that wait in the engine itself. 0 turns it off."`
	KVUsage    *float64      `yaml:"kv_usage" max:"1" doc:"Part of the engine's KV cache that is in use. It counts only while requests wait inside the engine. 0 turns it off."`
	StaleAfter time.Duration `yaml:"stale_after" doc:"Metrics older than this do not count. They are read with every health check."`
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

func (q Queue) config() queue.Config {
	return queue.Config{MaxDepth: valueOf(q.MaxDepth), MaxBytes: int64(valueOf(q.MaxBytes)), MaxWait: q.MaxWait.config(), Age: q.Age.config(),
		AgedShare: valueOf(q.AgedShare), Displace: valueOf(q.Displace), EngineWait: valueOf(q.EngineWait)}
}

func (c ByClass) config() [queue.Classes]time.Duration {
	return [queue.Classes]time.Duration{valueOf(c.Interactive), valueOf(c.Background), valueOf(c.Batch)}
}

func (s Saturation) config() routing.Saturation {
	return routing.Saturation{Waiting: valueOf(s.Waiting), KVUsage: valueOf(s.KVUsage), StaleAfter: s.StaleAfter}
}

// valueOf returns what p points at, and zero where it points at nothing.
func valueOf[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
