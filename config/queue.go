package config

import (
	"time"

	"tierway/queue"
	"tierway/routing"
)

// Queue says how requests wait. In a tier or pool, what is nil or a zero heartbeat
// is the file's value, key by key.
type Queue struct {
	MaxDepth       *int           `yaml:"max_depth" doc:"Maximum number of waiting requests per class. Over it, a request is rejected with 503 'overloaded' and Retry-After. 0: no queueing."`
	MaxWait        ByClass        `yaml:"max_wait" doc:"Maximum wait by class. A request that exceeds it is rejected with 503 'overloaded'. '0s': requests of the class do not wait."`
	Age            ByClass        `yaml:"age" doc:"Wait by class after which a request is dispatched like one of the next higher class, and to any worker with a free slot instead of the best one. '0s': requests of the class are never promoted."`
	AgedShare      *float64       `yaml:"aged_share" below:"1" doc:"Largest share of tokens that promoted requests of lower classes receive while higher classes wait. 0: no share, regardless of their wait."`
	MaxBytes       *Size          `yaml:"max_bytes" zero:"true" doc:"Maximum total size of all waiting request bodies. 0: no limit."`
	Displace       *bool          `yaml:"displace" doc:"A full queue evicts waiting requests for a new one. If the class is full, it evicts the newest request of the tenant with the largest backlog for its weight. If bytes are short, it evicts from less urgent classes first. 'false' rejects the new request instead."`
	EngineWait     *time.Duration `yaml:"engine_wait" zero:"true" doc:"Maximum wait while no worker is up, if longer than 'max_wait'. '0s': the request is rejected at once with 503 'no_healthy_worker'."`
	HeartbeatAfter time.Duration  `yaml:"heartbeat_after" doc:"Queue time after which a waiting stream is opened and kept alive with comments."`
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
	Waiting    *int          `yaml:"waiting" doc:"Requests waiting inside the engine. 0 turns the check off."`
	KVUsage    *float64      `yaml:"kv_usage" max:"1" doc:"Used share of the engine's KV cache. It counts only while requests wait inside the engine. 0 turns the check off."`
	StaleAfter time.Duration `yaml:"stale_after" doc:"Age after which metrics are ignored. A busy worker's metrics are read every third of this period, at least once per second and at most every 100 ms."`
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
