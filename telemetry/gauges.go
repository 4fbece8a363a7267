package telemetry

import "time"

// The types that Observe takes. Totals count since the gateway started.

// OldestRequest is how long the oldest request in flight has taken.
type OldestRequest struct {
	Age time.Duration `metric:"tierway_inflight_oldest_age_seconds" help:"How long the oldest request in flight has taken; 0 while none is."`
}

// BodyMemory is the memory of request bodies.
type BodyMemory struct {
	Held  int64 `metric:"tierway_request_body_bytes" help:"Memory of request bodies that are being read, are queued or may be sent again."`
	Limit int64 `metric:"tierway_request_body_limit_bytes" help:"Bound of that memory: max_buffered_bytes, or its default."`
}

// WorkerGauges is one worker.
type WorkerGauges struct {
	Tier             string  `label:"tier"`
	Worker           string  `label:"worker"`
	Up               bool    `metric:"tierway_worker_up" help:"1 while the worker's health checks pass and its engine reports neither sleep nor pause."`
	Weight           int     `metric:"tierway_worker_weight" help:"The worker's weight in force, of the configuration or by hand; 0 while it is drained."`
	Backoff          bool    `metric:"tierway_worker_backoff" help:"1 while the worker is in backoff and gets no requests: after 429, 503 with Retry-After or with a full engine queue, or after it refused the gateway's key."`
	Inflight         int     `metric:"tierway_worker_inflight" help:"Requests booked on the worker."`
	PendingTokens    int64   `metric:"tierway_worker_pending_tokens" help:"Booked prompt tokens whose first content has not come."`
	OutputTokens     int64   `metric:"tierway_worker_output_tokens" help:"Booked output tokens of requests in flight."`
	Waiting          int     `metric:"tierway_worker_engine_waiting" help:"Requests in the engine's own queue, as it reports them."`
	Running          int     `metric:"tierway_worker_engine_running" help:"Requests that the engine runs, as it reports them."`
	KVUsage          float64 `metric:"tierway_worker_kv_usage_ratio" help:"Share of the engine's KV cache in use, 0 to 1, as it reports it."`
	Breaker          int     `metric:"tierway_worker_breaker" help:"The worker's circuit breaker: 0 closed, 1 half-open, 2 open."`
	PrefillRate      float64 `metric:"tierway_worker_prefill_tokens_per_second" help:"Prompt tokens a second that the worker prefills, as learned from its streams."`
	ConcurrencyLimit int     `metric:"tierway_worker_concurrency_limit" help:"Requests that the worker is given at once: max_inflight, or the learned bound; 0 while there is none."`
	Saturated        bool    `metric:"tierway_worker_saturated" help:"1 while the engine's own queue or KV cache keeps new requests from the worker."`
	ChecksOK         int64   `metric:"tierway_health_checks_total" with:"result=ok" help:"Health checks of a worker by result: ok, failed."`
	ChecksFailed     int64   `metric:"tierway_health_checks_total" with:"result=failed"`
}

// QueueGauges is one queue.
type QueueGauges struct {
	Tier     string `label:"tier"`
	Bytes    int64  `metric:"tierway_queue_bytes" help:"Bytes of the bodies of the requests that wait."`
	Stale    int64  `metric:"tierway_metrics_stale_seconds_total" help:"Seconds in which requests were given out without regard to a worker's own metrics, because those were older than saturation.stale_after; summed over the workers."`
	MaxBytes int64  `metric:"tierway_queue_limit_bytes" help:"Bytes of bodies that may wait; 0 while there is no bound."`
	MaxDepth int    `metric:"tierway_queue_limit_requests" help:"Requests of each class that may wait; 0 while nobody may."`
	Classes  []ClassGauges
}

// ClassGauges is one class of a queue.
type ClassGauges struct {
	Class      string        `label:"class"`
	Depth      int           `metric:"tierway_queue_depth" help:"Requests that wait for a worker."`
	Oldest     time.Duration `metric:"tierway_queue_oldest_age_seconds" help:"How long the request that waits longest has waited; 0 when nobody waits."`
	Entered    int64         `metric:"tierway_queue_entered_total" help:"Requests that had to wait. Entered = dispatched + abandoned + expired + depth."`
	Dispatched int64         `metric:"tierway_queue_dispatched_total" help:"Requests that had a worker after a wait."`
	Promoted   int64         `metric:"tierway_queue_promotions_total" help:"Requests that waited longer than their class's age and went as the class above."`
	Abandoned  int64         `metric:"tierway_queue_abandoned_total" help:"Requests whose client left while they waited."`
	Expired    int64         `metric:"tierway_queue_expired_total" help:"Requests shed after a wait."`
	Shed       []ShedTotal   // each reason once, also those of no request
}

// ShedTotal counts the requests that a queue refused for a reason.
type ShedTotal struct {
	Reason string `label:"reason"` // from a fixed set
	Total  int64  `metric:"tierway_queue_shed_total" help:"Requests that the queue refused, at once or after a wait, by reason: depth and bytes (the queue was full), wait (max_wait was over), deadline (their turn would have come too late), displaced (for a newcomer), engine (nobody was up for engine_wait). Counts too where a request that a worker had failed was to wait for another one: its client is told what the worker did."`
}

// Stores is the stores outside the process, as they were last seen. What is not configured
// is nil.
type Stores struct {
	Redis    *RedisGauges
	Database *DatabaseGauges
}

// RedisGauges is Redis.
type RedisGauges struct {
	Up       bool `metric:"tierway_redis_up" help:"1 while Redis answers; absent without Redis."`
	Gateways int  `metric:"tierway_redis_gateways" help:"Live gateways that share the Redis, as last seen; absent without Redis."`
	Degraded bool `metric:"tierway_ratelimit_degraded" help:"1 while each gateway enforces limits alone because Redis is away; absent without Redis."`
}

// DatabaseGauges is the SQL database and the ledger that is written to it.
type DatabaseGauges struct {
	Up        bool             `metric:"tierway_database_up" help:"1 while the SQL database can be read and takes rows; absent without one."`
	Spooled   int              `metric:"tierway_ledger_spooled_rows" help:"Rows of the ledger in memory that are not yet in the database."`
	Written   int64            `metric:"tierway_ledger_written_rows_total" help:"Rows of the ledger written to the database."`
	Dropped   int64            `metric:"tierway_ledger_dropped_rows_total" help:"Rows of the ledger lost because the spool was full."`
	Loaded    bool             `metric:"tierway_directory_loaded" help:"1 once tenants and keys were read from the database."`
	Directory *DirectoryGauges // nil until Loaded
}

// DirectoryGauges is the tenants and keys that were read from the database.
type DirectoryGauges struct {
	Read    time.Time `metric:"tierway_directory_age_seconds" help:"Since tenants and keys were last read from the database; absent before the first time."`
	Tenants int       `metric:"tierway_directory_tenants" help:"Tenants as last read from the database; absent before the first time."`
	Keys    int       `metric:"tierway_directory_keys" help:"Keys as last read from the database; absent before the first time."`
}

// DecisionLog is the records of decisions.
type DecisionLog struct {
	Kept    int   `metric:"tierway_decisions_kept" help:"Records of decisions in memory."`
	Bytes   int64 `metric:"tierway_decisions_kept_bytes" help:"Memory that the records of decisions take, about."`
	Streams int   `metric:"tierway_decisions_streams" help:"Open streams of GET /admin/decisions/stream."`
	Written int64 `metric:"tierway_decisions_written_total" help:"Records of decisions written to decisions.file."`
	Dropped int64 `metric:"tierway_decisions_dropped_total" help:"Records of decisions that decisions.file could not take: the disk was full or too slow, or the file could not be opened."`
}

// TraceCounts counts ended spans: ended = exported + failed + dropped + queued. Dropped
// ones found the queue full, or ended after the gateway had stopped sending.
type TraceCounts struct {
	Exported int64 `metric:"tierway_trace_spans_total" with:"result=exported" help:"Spans of ended requests by result: exported (the collector took them), failed (it did not, or could not be asked), dropped (the queue was full). 0 without tracing."`
	Failed   int64 `metric:"tierway_trace_spans_total" with:"result=failed"`
	Dropped  int64 `metric:"tierway_trace_spans_total" with:"result=dropped"`
	Queued   int64 `metric:"tierway_trace_queue" help:"Spans of ended requests that wait for the collector or are being sent to it; 0 without tracing."`
}

// Logs counts the lines that could not be written.
type Logs struct {
	Access  int64 `metric:"tierway_log_dropped_lines_total" with:"log=access" help:"Log lines that were dropped, by log (access, program): whatever reads the log is too slow, has left, or its disk is full."`
	Program int64 `metric:"tierway_log_dropped_lines_total" with:"log=program"`
}
