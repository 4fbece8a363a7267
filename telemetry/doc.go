// Package telemetry names every metric that Tierway exports, exports traces over OTLP, and
// limits repeated log lines.
//
// # Metrics
//
// [New] returns the [Metrics] of a process. Series that a request updates are resolved before
// the request arrives: [Metrics.Tier], [Metrics.Worker] and [Metrics.Waits] return them per
// tier and worker, so that an update is one atomic operation without a lookup. Values that
// another package already holds are read at each scrape: [Observe] registers a function that
// returns one of the types of this package, such as [WorkerGauges].
//
// No client can add a series. Label values come from the configuration or from a fixed set;
// any other value counts as "other" or is not counted. Tenants have series of their own only
// while they are among the busiest (telemetry.tenants); [Metrics.RankTenants] compares them.
//
// In every scrape, tierway_requests_started_total is the sum of tierway_requests_total plus
// tierway_inflight. [Metrics.Names] describes all metrics; docs/metrics.md is generated from it.
//
// # Traces
//
// [NewTraces] returns the [Traces] of a process; a nil value turns tracing off.
// [Traces.Begin] starts the span of a request, [TraceContext.End] ends it. Neither blocks: if
// the collector is slow or unavailable, spans are dropped and counted.
//
// # Logs
//
// [LogHandler] writes at most a given number of lines per second of the same message and
// counts the rest. The access log does not pass through it.
package telemetry
