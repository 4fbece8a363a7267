package telemetry

// SchemaURL is the version of OpenTelemetry's semantic conventions that the
// names below are from. It is the last one of the core conventions that holds the
// GenAI names.
const SchemaURL = "https://opentelemetry.io/schemas/1.41.0"

// Names of span attributes by the semantic conventions.
const (
	AttrServiceName    = "service.name"
	AttrServiceVersion = "service.version"

	AttrHTTPMethod = "http.request.method"
	AttrHTTPRoute  = "http.route"
	AttrHTTPStatus = "http.response.status_code"
	AttrErrorType  = "error.type"

	AttrGenAIOperation = "gen_ai.operation.name"
	AttrGenAIProvider  = "gen_ai.provider.name"
	AttrGenAIModel     = "gen_ai.request.model"
	AttrGenAIStream    = "gen_ai.request.stream"
	AttrGenAIMaxTokens = "gen_ai.request.max_tokens"
	AttrGenAIAnswered  = "gen_ai.response.model"
	AttrGenAIInput     = "gen_ai.usage.input_tokens"
	AttrGenAIOutput    = "gen_ai.usage.output_tokens"
	AttrGenAICached    = "gen_ai.usage.cache_read.input_tokens"
	AttrGenAIFirst     = "gen_ai.response.time_to_first_chunk" // seconds
)

// Names of span attributes of the gateway's own, of the request's span where
// nothing else is said.
const (
	AttrRequestID  = "tierway.request_id"
	AttrOutcome    = "tierway.outcome"
	AttrCode       = "tierway.code" // of the error that the client was answered with
	AttrTenant     = "tierway.tenant"
	AttrKey        = "tierway.key" // the id of the key, never the key
	AttrClass      = "tierway.class"
	AttrAskedClass = "tierway.asked_class"
	AttrPromoted   = "tierway.promoted"
	AttrDialect    = "tierway.dialect"
	AttrAskedModel = "tierway.requested_model" // what was asked for, where something else was sent
	AttrTier       = "tierway.tier"
	AttrRule       = "tierway.rule"
	AttrRuleNote   = "tierway.rule_note"
	AttrPolicy     = "tierway.policy" // of the route's span too
	AttrWorker     = "tierway.worker" // of the route's and the attempt's span too
	AttrReason     = "tierway.reason" // of the route's span too
	AttrAttempts   = "tierway.attempts"
	AttrGeneration = "tierway.config_generation"
	AttrOverheadMs = "tierway.overhead_ms"
	AttrQueueMs    = "tierway.queue_ms"
	AttrTTFTMs     = "tierway.ttft_ms"
	AttrEstimate   = "tierway.prompt_tokens_estimate"
	AttrPrompt     = "tierway.prompt_tokens" // of all that the request was charged for; attempts have the conventions' names
	AttrCached     = "tierway.cached_tokens"
	AttrOutput     = "tierway.output_tokens"
	AttrEstimated  = "tierway.usage_estimated"
	AttrLimit      = "tierway.limit" // that refused the request
	AttrShed       = "tierway.shed"  // why the queue refused it; of the queue's span too

	AttrKeyOf       = "tierway.route.key_of" // of the route's span: what the placing key stands for
	AttrRunnerUp    = "tierway.route.runner_up"
	AttrSeen        = "tierway.route.candidates"
	AttrHeld        = "tierway.route.held" // the chosen worker was full: the request waited for it
	AttrSelectionUs = "tierway.route.selection_us"
	AttrPredicted   = "tierway.predicted_cached_tokens" // of the route's and the attempt's span

	AttrAttempt = "tierway.attempt" // of queue, route and attempt spans: which one, from 1

	AttrCandidateScore   = "tierway.candidate.score" // of the events named candidate
	AttrCandidatePassed  = "tierway.candidate.passed"
	AttrCandidateOverlap = "tierway.candidate.overlap_tokens"
	AttrCandidatePending = "tierway.candidate.pending_tokens"
	AttrCandidateLoad    = "tierway.candidate.inflight"
	AttrCandidateTerm    = "tierway.candidate.term." // and the term's name
)

// Names of spans and events.
const (
	SpanQueue      = "queue"
	SpanRoute      = "route"
	SpanEngine     = "llm_request" // of a simulated engine, as vLLM calls its own
	EventCandidate = "candidate"
	EventFirst     = "first_content"
)
