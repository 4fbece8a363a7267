package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// OldestRequest is the age of the oldest request in flight.
type OldestRequest struct {
	Age time.Duration `metric:"tierway_inflight_oldest_age_seconds" help:"Age of the oldest request in flight; 0 if there is none."`
}

// BodyMemory is the memory of request bodies, in bytes.
type BodyMemory struct {
	Used  int64 `metric:"tierway_request_body_bytes" help:"Memory of request bodies that are being read, wait in a queue or may be sent again."`
	Limit int64 `metric:"tierway_request_body_limit_bytes" help:"Limit of tierway_request_body_bytes: max_buffered_bytes or its default."`
}

// WorkerLoad is the load of a worker in the metrics and in the admin API. Waiting, Running and KVUsage are as
// the engine reports them.
type WorkerLoad struct {
	Weight           int     `json:"weight" doc:"Weight in force." metric:"tierway_worker_weight" help:"Weight in force, from the configuration or set by an operator; 0 while the worker is drained."`
	EffectiveWeight  float64 `json:"effective_weight" doc:"The weight by which requests are divided: weight, or less by health_weight." metric:"tierway_worker_effective_weight" help:"Weight by which requests are divided: tierway_worker_weight, or less if health_weight is enabled and the worker fails requests."`
	SuccessRatio     float64 `json:"success_ratio" doc:"Share of the worker's recent requests that succeeded, by the outcomes that its breaker counts." metric:"tierway_worker_success_ratio" help:"Share of the worker's recent requests that succeeded, by the outcomes that its circuit breaker counts. It recovers within minutes without requests."`
	Inflight         int     `json:"inflight" doc:"Requests of this gateway." metric:"tierway_worker_inflight" help:"Requests booked on the worker."`
	OthersInflight   int     `json:"other_gateways_inflight" doc:"Requests of other gateways, as last published and estimated since." metric:"tierway_worker_other_gateways_inflight" help:"Requests that other gateways have booked on the worker, as last published and estimated since; 0 for a single gateway."`
	HistoryTokens    int64   `json:"history_tokens" doc:"Tokens in the gateway's model of the worker's cache, which follows the routing history of all gateways." metric:"tierway_worker_history_tokens" help:"Tokens in the gateway's model of the worker's cache, which follows the routing history of all gateways."`
	PendingTokens    int64   `json:"pending_tokens" metric:"tierway_worker_pending_tokens" help:"Prompt tokens of booked requests before their first content."`
	OutputTokens     int64   `json:"output_tokens" metric:"tierway_worker_output_tokens" help:"Output tokens booked for requests in flight."`
	Waiting          int     `json:"engine_waiting" metric:"tierway_worker_engine_waiting" help:"Requests in the engine's own queue, as the engine reports them."`
	Running          int     `json:"engine_running" metric:"tierway_worker_engine_running" help:"Requests that the engine runs, as the engine reports them."`
	KVUsage          float64 `json:"kv_usage" metric:"tierway_worker_kv_usage_ratio" help:"Used share of the engine's KV cache, 0 to 1, as the engine reports it."`
	ConcurrencyLimit int     `json:"bound" doc:"Concurrency limit in force. 0: unlimited." metric:"tierway_worker_concurrency_limit" help:"Limit on the worker's concurrent requests: max_inflight or the learned limit; 0 if there is none."`
	Saturated        bool    `json:"saturated" doc:"The engine's metrics show that it cannot take more work; it receives no requests." metric:"tierway_worker_saturated" help:"1 while the engine's own queue or KV cache keeps new requests from the worker."`
}

// WorkerGauges is the state of one worker.
type WorkerGauges struct {
	Tier   string `label:"tier"`
	Worker string `label:"worker"`
	Up     bool   `metric:"tierway_worker_up" help:"1 while the worker's health checks pass and its engine reports neither sleep nor pause."`
	WorkerLoad
	Backoff      bool            `metric:"tierway_worker_backoff" help:"1 while the worker is in backoff and receives no requests. Causes: 429, an overload of the engine (503, 529), or a rejection of the gateway's key."`
	Breaker      int             `metric:"tierway_worker_breaker" help:"State of the worker's circuit breaker: 0 closed, 1 half-open, 2 open. A worker that the ejection cap keeps in rotation counts as closed."`
	PrefillRate  float64         `metric:"tierway_worker_prefill_tokens_per_second" help:"Learned prefill rate: prompt tokens per second."`
	ChecksOK     int64           `metric:"tierway_health_checks_total" with:"result=ok" help:"Health checks of a worker by result: ok, failed."`
	ChecksFailed int64           `metric:"tierway_health_checks_total" with:"result=failed"`
	Events       *EventGauges    // nil if no KV-cache events of the worker are read
	Handovers    *HandoverGauges // nil without a hand-over
}

// EventGauges is the state of a worker's KV-cache events, of all its data-parallel ranks together.
// Totals count since the worker was added.
type EventGauges struct {
	Up             bool          `metric:"tierway_kv_events_up" help:"1 while all streams of the worker's KV-cache events are connected, and no missed events are being replayed; absent for a worker without events."`
	Known          bool          `metric:"tierway_kv_events_complete" help:"1 while requests are routed by the worker's events: they are connected, the index has the whole cache or nearly all of it, and no blocks have an unnamed adapter. 0: routing uses its own history of the worker."`
	Blocks         int           `metric:"tierway_kv_index_blocks" help:"Cached blocks of the worker that the gateway knows from events."`
	Lag            time.Duration `metric:"tierway_kv_events_lag_seconds" help:"Time from the engine's timestamp of the last batch of events until the gateway has applied it."`
	Batches        int64         `metric:"tierway_kv_event_batches_total" help:"Batches of KV-cache events that were applied."`
	Stored         int64         `metric:"tierway_kv_events_total" with:"kind=stored" help:"KV-cache events by kind: stored, removed, cleared (the whole cache), rejected (the event could not be used), unnamed_adapter (blocks of a LoRA adapter that the engine states by number only, so that no request matches them)."`
	Removed        int64         `metric:"tierway_kv_events_total" with:"kind=removed"`
	Cleared        int64         `metric:"tierway_kv_events_total" with:"kind=cleared"`
	Rejected       int64         `metric:"tierway_kv_events_total" with:"kind=rejected"`
	Unnamed        int64         `metric:"tierway_kv_events_total" with:"kind=unnamed_adapter"`
	StoredBlocks   int64         `metric:"tierway_kv_event_blocks_total" with:"result=stored" help:"Blocks of KV-cache events by result. stored, removed: the index has changed. unknown: the block, or the one before it, was published before the gateway read the events. evicted: dropped because kv_events.max_bytes was reached. unusable: the group of the block represents no prefix, such as the state of Mamba layers. changed: stored again with other tokens. aged: in a medium from which the engine publishes no removals, and as many tokens as it holds were stored later (kv_events.offload_tokens)."`
	RemovedBlocks  int64         `metric:"tierway_kv_event_blocks_total" with:"result=removed"`
	UnknownBlocks  int64         `metric:"tierway_kv_event_blocks_total" with:"result=unknown"`
	EvictedBlocks  int64         `metric:"tierway_kv_event_blocks_total" with:"result=evicted"`
	UnusableBlocks int64         `metric:"tierway_kv_event_blocks_total" with:"result=unusable"`
	ChangedBlocks  int64         `metric:"tierway_kv_event_blocks_total" with:"result=changed"`
	AgedBlocks     int64         `metric:"tierway_kv_event_blocks_total" with:"result=aged"`
	Lost           int64         `metric:"tierway_kv_events_faults_total" with:"kind=lost" help:"Faults of KV-cache events by kind. lost: the connection ended or could not be made. gap: messages are missing. restart: the engine began a new stream. undecodable: a message is not a batch of events. unsequenced: messages of a stream have no sequence number, so that gaps cannot be found; counts once for each stream. reset: the index of a stream was emptied, after a gap or restart that no replay repaired."`
	Gaps           int64         `metric:"tierway_kv_events_faults_total" with:"kind=gap"`
	Restarts       int64         `metric:"tierway_kv_events_faults_total" with:"kind=restart"`
	Undecodable    int64         `metric:"tierway_kv_events_faults_total" with:"kind=undecodable"`
	Unsequenced    int64         `metric:"tierway_kv_events_faults_total" with:"kind=unsequenced"`
	Resets         int64         `metric:"tierway_kv_events_faults_total" with:"kind=reset"`
	Replayed       int64         `metric:"tierway_kv_event_replays_total" with:"result=ok" help:"Replays of missed KV-cache events by result: ok, failed."`
	ReplayFailed   int64         `metric:"tierway_kv_event_replays_total" with:"result=failed"`
}

// IndexMemory is the memory of the index of cached blocks, in bytes.
type IndexMemory struct {
	Used  int64 `metric:"tierway_kv_index_bytes" help:"Memory of all cached blocks that the gateway knows from KV-cache events, at most."`
	Limit int64 `metric:"tierway_kv_index_limit_bytes" help:"Limit of tierway_kv_index_bytes (kv_events.max_bytes)."`
}

// QueueGauges is the state of one queue.
type QueueGauges struct {
	Tier     string `label:"tier"`
	Bytes    int64  `metric:"tierway_queue_bytes" help:"Bytes of the bodies of waiting requests."`
	Stale    int64  `metric:"tierway_metrics_stale_seconds_total" help:"Seconds with decisions while a worker's own metrics were older than saturation.stale_after and thus ignored, summed over workers."`
	MaxBytes int64  `metric:"tierway_queue_limit_bytes" help:"Limit of tierway_queue_bytes (queue.max_bytes); 0 if there is none."`
	MaxDepth int    `metric:"tierway_queue_limit_requests" help:"Limit of tierway_queue_depth of each class (queue.max_depth); 0 if no request may wait."`
	Classes  []ClassGauges
}

// ClassGauges is the state of one class of a queue. Totals count since the gateway started.
type ClassGauges struct {
	Class      string        `label:"class"`
	Depth      int           `metric:"tierway_queue_depth" help:"Requests that wait for a worker."`
	Oldest     time.Duration `metric:"tierway_queue_oldest_age_seconds" help:"Wait of the oldest waiting request; 0 if none waits."`
	Entered    int64         `metric:"tierway_queue_entered_total" help:"Requests that had to wait. entered = dispatched + abandoned + expired + moved + depth."`
	Dispatched int64         `metric:"tierway_queue_dispatched_total" help:"Requests that reached a worker after a wait."`
	Promoted   int64         `metric:"tierway_queue_promotions_total" help:"Requests that waited longer than the age of their class and were dispatched as the class above."`
	Abandoned  int64         `metric:"tierway_queue_abandoned_total" help:"Requests that ended in the queue because the client disconnected."`
	Expired    int64         `metric:"tierway_queue_expired_total" help:"Requests that the queue rejected after a wait. tierway_queue_shed_total has the reasons."`
	Moved      int64         `metric:"tierway_queue_moved_total" help:"Requests that left the queue for the queue of another tier, because no worker was up. classifier.unavailable selects that tier."`
	Shed       []ShedTotal   // one element for each reason, also with a total of 0
}

// ShedTotal counts the requests that a queue rejected for one reason.
type ShedTotal struct {
	Reason string `label:"reason"` // from a fixed set
	Total  int64  `metric:"tierway_queue_shed_total" help:"Requests that the queue rejected, at once or after a wait, by reason. depth: max_depth requests of the class waited. bytes: the bodies of waiting requests filled max_bytes. wait: max_wait or the client's deadline passed. deadline: the request's turn would come after that time. displaced: the request was evicted for a more urgent one, or for a tenant with a smaller backlog. engine: no worker was up for engine_wait. Retries that the queue rejects after a failed attempt count too; their clients receive the error of that attempt."`
}

// Stores is the state of Redis and the database. A store that is not configured is nil.
type Stores struct {
	Redis    *RedisGauges
	Database *DatabaseGauges
}

// RedisGauges is the state of Redis.
type RedisGauges struct {
	Up       bool `metric:"tierway_redis_up" help:"1 while Redis responds; absent without Redis."`
	Gateways int  `metric:"tierway_redis_gateways" help:"Live gateways that share this Redis, at the last exchange; absent without Redis."`
	Degraded bool `metric:"tierway_ratelimit_degraded" help:"1 while each gateway enforces its part of rpm, tpm and concurrent alone because Redis is unavailable; absent without Redis."`
	Sharing  SharingGauges
}

// SharingGauges is the exchange of loads and journals with the other gateways of the same Redis.
type SharingGauges struct {
	Gateways   int   `metric:"tierway_sharing_gateways" help:"Other gateways with a load that this gateway has read; absent without Redis."`
	CaughtUp   bool  `metric:"tierway_sharing_caught_up" help:"1 once this gateway has read what the others published before its start; absent without Redis."`
	Exchanges  int64 `metric:"tierway_sharing_exchanges_total" help:"Exchanges of load and routing history with Redis, failed ones included; absent without Redis."`
	Failed     int64 `metric:"tierway_sharing_failed_exchanges_total" help:"Exchanges that failed. Their history is sent again; absent without Redis."`
	Sent       int64 `metric:"tierway_sharing_sent_bytes_total" help:"Bytes of load and history that this gateway published; absent without Redis."`
	Received   int64 `metric:"tierway_sharing_received_bytes_total" help:"Bytes of load and history of other gateways that this gateway has read; absent without Redis."`
	Dropped    int64 `metric:"tierway_sharing_dropped_entries_total" help:"Entries of the routing history that were not published, because too many waited; absent without Redis."`
	Unreadable int64 `metric:"tierway_sharing_unreadable_total" help:"Loads and histories of gateways of another version that this gateway ignored; absent without Redis."`
}

// DatabaseGauges is the state of the SQL database and of the ledger that is written to it.
type DatabaseGauges struct {
	Up        bool             `metric:"tierway_database_up" help:"1 while the SQL database can be read and accepts rows; absent without a database."`
	Spooled   int              `metric:"tierway_ledger_spooled_rows" help:"Ledger rows in memory that are not yet in the database."`
	Written   int64            `metric:"tierway_ledger_written_rows_total" help:"Ledger rows written to the database."`
	Dropped   int64            `metric:"tierway_ledger_dropped_rows_total" help:"Ledger rows lost because the buffer in memory was full."`
	Loaded    bool             `metric:"tierway_directory_loaded" help:"1 after tenants and keys were read from the database."`
	Directory *DirectoryGauges // nil until Loaded
}

// DirectoryGauges describes the tenants and keys that were read from the database.
type DirectoryGauges struct {
	Read    time.Time `metric:"tierway_directory_age_seconds" help:"Time since tenants and keys were last read from the database; absent before the first read."`
	Tenants int       `metric:"tierway_directory_tenants" help:"Tenants at the last read of the database; absent before the first read."`
	Keys    int       `metric:"tierway_directory_keys" help:"Keys at the last read of the database; absent before the first read."`
}

// DecisionLog is the state of the decision log.
type DecisionLog struct {
	Kept    int   `metric:"tierway_decisions_kept" help:"Decision records in memory."`
	Bytes   int64 `metric:"tierway_decisions_kept_bytes" help:"Approximate memory of the decision records."`
	Streams int   `metric:"tierway_decisions_streams" help:"Open streams of GET /admin/stream and GET /admin/decisions/stream."`
	Written int64 `metric:"tierway_decisions_written_total" help:"Decision records written to decisions.file."`
	Dropped int64 `metric:"tierway_decisions_dropped_total" help:"Decision records that could not be written to decisions.file: the disk was full or too slow, or the file could not be opened."`
}

// LearningFiles counts the lines of the files in learning.directory.
type LearningFiles struct {
	Features        int64 `metric:"tierway_features_written_total" help:"Lines written to features.jsonl of learning.directory."`
	FeaturesDropped int64 `metric:"tierway_features_dropped_total" help:"Lines of features.jsonl that were lost: the disk was full or too slow, or the file could not be opened."`
	Labels          int64 `metric:"tierway_labels_written_total" help:"Lines written to labels.jsonl of learning.directory."`
	LabelsDropped   int64 `metric:"tierway_labels_dropped_total" help:"Labels that were not written to labels.jsonl: the disk was full or the file could not be opened, or too many labels waited, so that feedback was rejected with 503."`
}

// TraceCounts counts the spans of ended requests: ended = exported + failed + dropped + queued.
// A span is dropped if the queue is full, or if it ends after the gateway has stopped exporting.
type TraceCounts struct {
	Exported int64 `metric:"tierway_trace_spans_total" with:"result=exported" help:"Spans of ended requests by result. exported: the collector accepted them. failed: the collector rejected them or could not be reached. dropped: the queue was full. 0 without tracing."`
	Failed   int64 `metric:"tierway_trace_spans_total" with:"result=failed"`
	Dropped  int64 `metric:"tierway_trace_spans_total" with:"result=dropped"`
	Queued   int64 `metric:"tierway_trace_queue" help:"Spans of ended requests that wait for export or are being exported; 0 without tracing."`
}

// Logs counts log lines that were dropped.
type Logs struct {
	Access  int64 `metric:"tierway_log_dropped_lines_total" with:"log=access" help:"Log lines that were dropped, by log (access, program): the reader of the log is too slow or has exited, or the disk is full."`
	Program int64 `metric:"tierway_log_dropped_lines_total" with:"log=program"`
}

// TokenGauges is what is known of the tokens of prompts in one tier or pool whose policy uses KV-cache
// events. Totals count since the policy was configured.
type TokenGauges struct {
	Tier      string `label:"tier"`
	Known     int64  `metric:"tierway_prompt_lookups_total" with:"result=known" help:"Requests of which the prompt was looked up in the index of KV-cache events, by what was known of its tokens: known (all at once), answered (all, after an engine or the tokenizer was asked), beginning (earlier messages only), unknown (nothing: routing uses its own history)."`
	Answered  int64  `metric:"tierway_prompt_lookups_total" with:"result=answered"`
	Beginning int64  `metric:"tierway_prompt_lookups_total" with:"result=beginning"`
	Unknown   int64  `metric:"tierway_prompt_lookups_total" with:"result=unknown"`

	TimedOut int64 `metric:"tierway_prompt_lookups_late_total" with:"reason=timeout" help:"Look-ups that did not get the tokens of their prompt in time, by reason: timeout (policy.lookup_timeout, or no wait because recent answers took longer), busy (too many prompts waited to be tokenized)."`
	Busy     int64 `metric:"tierway_prompt_lookups_late_total" with:"reason=busy"`

	Asked      int64 `metric:"tierway_prompt_tokenize_requests_total" help:"Requests to engines for the tokens of prompts."`
	Parts      int64 `metric:"tierway_prompt_parts_total" help:"Prompts of which only the new messages were sent to an engine."`
	Failed     int64 `metric:"tierway_prompt_tokenize_failures_total" help:"Prompts for which no engine returned tokens."`
	Mismatched int64 `metric:"tierway_prompt_mismatches_total" help:"Prompts with tokens that contradict those of an earlier message. After one, all prompts are sent as a whole for an hour."`
	Miscounted int64 `metric:"tierway_prompt_miscounts_total" help:"Prompts of which the engine counted other tokens than it returned. Requests of such a form are routed without exact blocks for an hour."`

	Bytes int64 `metric:"tierway_prompt_tokens_bytes" help:"Memory of the known tokens of prompts."`
}

// LMCache resolves the histogram of look-ups of a tier whose policy uses LMCache's controller. RemoveTier removes it.
func (m *Metrics) LMCache(tier string) prometheus.Observer {
	return m.lmcacheLookups.WithLabelValues(tier)
}

// LMCacheGauges is the state of LMCache's controller for one tier or pool. Totals count since the policy was
// configured.
type LMCacheGauges struct {
	Tier      string `label:"tier"`
	Up        bool   `metric:"tierway_lmcache_up" help:"1 while LMCache's controller answers, lists workers of the tier and, in mode prefix_lookup, finds prompts; GET /admin/overview has the state in one word. Absent without the policy lmcache_aware."`
	Workers   int    `metric:"tierway_lmcache_workers" help:"Instances of LMCache that the controller lists and that are workers of the tier."`
	Keys      int64  `metric:"tierway_lmcache_keys" help:"Keys of these instances: chunks in their caches. 0 if the controller states none."`
	Matched   int64  `metric:"tierway_lmcache_lookups_total" with:"result=match" help:"Look-ups in LMCache's controller by result. match: a worker of the tier has the beginning of the prompt. miss: none is known to have it. failed, timeout: no answer that can be used, and further look-ups are suspended. suspended: not sent for that reason. skipped: not sent, because 64 others had no answer yet."`
	Missed    int64  `metric:"tierway_lmcache_lookups_total" with:"result=miss"`
	Failed    int64  `metric:"tierway_lmcache_lookups_total" with:"result=failed"`
	TimedOut  int64  `metric:"tierway_lmcache_lookups_total" with:"result=timeout"`
	Suspended int64  `metric:"tierway_lmcache_lookups_total" with:"result=suspended"`
	Skipped   int64  `metric:"tierway_lmcache_lookups_total" with:"result=skipped"`
}

// PredictionGauges is how well routing has predicted cached prefixes and times to first token in one
// tier or pool, in total.
type PredictionGauges struct {
	Tier        string             `label:"tier"`
	Events      int64              `metric:"tierway_prefix_predictions_total" with:"source=events" help:"Requests sent to a worker, by the source of the predicted cached part of their prompt: events (the engine's KV-cache events), history (the gateway's own model of the cache), lookup (LMCache's controller), none (nothing is cached)."`
	History     int64              `metric:"tierway_prefix_predictions_total" with:"source=history"`
	None        int64              `metric:"tierway_prefix_predictions_total" with:"source=none"`
	WrongTokens int64              `metric:"tierway_prefix_wrong_tokens_total" help:"Difference of predicted and cached prompt tokens, summed over requests without regard to its sign. Only workers that report cached tokens count."`
	Judged      int64              `metric:"tierway_routes_judged_total" help:"Streams with a predicted time to first token on another worker (policy kv_aware)."`
	Regretted   int64              `metric:"tierway_routes_regretted_total" help:"Judged streams whose real time to first token is at least 25 % above the prediction for another worker. Errors of that prediction count too: the share of better choices is lower."`
	Lookups     *LookupPredictions // nil without look-ups
	Workers     []CreditGauges
}

// CreditGauges is the credit of one worker's predictions.
type CreditGauges struct {
	Worker  string        `label:"worker"`
	Events  float64       `metric:"tierway_worker_prefix_credit_ratio" with:"source=events" help:"Recent share of predicted cached tokens that the worker really had, by source of the prediction (events, history, lookup), 0 to 1. Cached tokens that events should have shown, but did not, count as wrong predictions. If the ratio of events or lookup is below 0.5, the history predicts for that worker."`
	History float64       `metric:"tierway_worker_prefix_credit_ratio" with:"source=history"`
	Lookup  *LookupCredit // nil without look-ups
}

// LookupPredictions are the predictions by look-ups in LMCache's controller.
type LookupPredictions struct {
	Total int64 `metric:"tierway_prefix_predictions_total" with:"source=lookup"`
}

// LookupCredit is the credit of the look-ups in LMCache's controller for one worker.
type LookupCredit struct {
	Credit float64 `metric:"tierway_worker_prefix_credit_ratio" with:"source=lookup"`
}
