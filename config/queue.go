package config

import (
	"time"

	"tierway/queue"
	"tierway/routing"
)

// Queue configures queueing. In a tier or pool, nil fields and a zero heartbeat inherit the
// file's value, key by key.
type Queue struct {
	MaxDepth       *int           `yaml:"max_depth" doc:"Maximum number of waiting requests per class. Over it, a request is rejected with 503 'overloaded' and Retry-After. 0: no queueing."`
	MaxWait        ByClass        `yaml:"max_wait" doc:"Maximum wait by class. A request that exceeds it is rejected with 503 'overloaded'. '0s': requests of the class do not wait."`
	Age            ByClass        `yaml:"age" doc:"Wait by class after which a request is dispatched like one of the next higher class. It then goes to any worker with a free slot instead of the best one. '0s': requests of the class are never promoted."`
	AgedShare      *float64       `yaml:"aged_share" below:"1" doc:"Largest share of tokens that promoted requests of lower classes receive while higher classes wait. 0: no share, regardless of their wait."`
	MaxBytes       *Size          `yaml:"max_bytes" zero:"true" doc:"Maximum total size of all waiting request bodies. 0: no limit."`
	Displace       *bool          `yaml:"displace" doc:"A full queue evicts waiting requests for a new one. If the class is full, it evicts the newest request of the tenant with the largest backlog for its weight. If bytes are short, it evicts from less urgent classes first. 'false' rejects the new request instead."`
	EngineWait     *time.Duration `yaml:"engine_wait" zero:"true" doc:"Maximum wait while no worker that could serve the request is up, in place of 'max_wait'. '0s' rejects new requests at once with 503 'no_healthy_worker'; other values below 2 s count as 2 s."`
	HeartbeatAfter time.Duration  `yaml:"heartbeat_after" doc:"Time after which a stream that has sent nothing is opened and kept alive with comments, in the queue and while the engine is silent."`
}

// ByClass is a duration per priority class. A nil field is inherited.
type ByClass struct {
	Interactive *time.Duration `yaml:"interactive" zero:"true" doc:"For interactive requests."`
	Background  *time.Duration `yaml:"background" zero:"true" doc:"For background requests."`
	Batch       *time.Duration `yaml:"batch" zero:"true" doc:"For batch requests."`
}

// Saturation configures the engine metrics at which a worker receives no more requests. In a
// tier or pool, nil and zero fields inherit the file's value, key by key.
type Saturation struct {
	Waiting    *int          `yaml:"waiting" doc:"Requests waiting inside the engine. 0 turns the check off."`
	KVUsage    *float64      `yaml:"kv_usage" max:"1" doc:"Used share of the engine's KV cache. It counts only while requests wait inside the engine. 0 turns the check off."`
	StaleAfter time.Duration `yaml:"stale_after" doc:"Age after which metrics are ignored. A busy worker's metrics are read every third of this period, but at intervals of 100 ms to 1 s."`
}

func defaultQueue() Queue {
	return Queue{
		// A pool of four busy engines completes as many requests in one or two minutes.
		MaxDepth: new(1000),
		// Users of interactive requests give up after about ten seconds. The SDKs time out after
		// ten minutes.
		MaxWait: ByClass{Interactive: new(10 * time.Second), Background: new(60 * time.Second), Batch: new(10 * time.Minute)},
		Age:     ByClass{Interactive: new(time.Duration(0)), Background: new(10 * time.Second), Batch: new(30 * time.Second)},
		// A fifth does not delay higher classes noticeably, and lower classes make progress.
		AgedShare: new(0.2),
		MaxBytes:  new(Size(256 << 20)), // eight bodies of the default max_body_bytes, or three times max_depth at 87 KB
		// Otherwise one tenant's backlog would reject all other tenants of its class.
		Displace: new(true),
		// An engine takes minutes to load, so an immediate error serves clients better than a
		// wait.
		EngineWait:     new(time.Duration(0)),
		HeartbeatAfter: 15 * time.Second, // proxies cut silent responses after 30 to 60 s
	}
}

func defaultSaturation() Saturation {
	return Saturation{
		Waiting: new(5),   // inside the engine's queue, classes and tenants no longer count
		KVUsage: new(0.9), // above it, engines preempt running requests
		// Within five seconds, a busy engine starts and finishes more requests than that.
		StaleAfter: 5 * time.Second,
	}
}

func (q Queue) config() queue.Config {
	return queue.Config{
		MaxDepth:   valueOf(q.MaxDepth),
		MaxBytes:   int64(valueOf(q.MaxBytes)),
		MaxWait:    q.MaxWait.config(),
		Age:        q.Age.config(),
		AgedShare:  valueOf(q.AgedShare),
		Displace:   valueOf(q.Displace),
		EngineWait: valueOf(q.EngineWait),
	}
}

func (c ByClass) config() [queue.Classes]time.Duration {
	return [queue.Classes]time.Duration{valueOf(c.Interactive), valueOf(c.Background), valueOf(c.Batch)}
}

func (s Saturation) config() routing.Saturation {
	return routing.Saturation{Waiting: valueOf(s.Waiting), KVUsage: valueOf(s.KVUsage), StaleAfter: s.StaleAfter}
}

// valueOf returns the value that p points to, or the zero value for nil.
func valueOf[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
