// Package decisions defines the record of a request and the ways to keep, find and show it.
//
// A [Decision] holds what the gateway decided about one request, each with its reason, and how
// the request ended. It holds names, numbers and hashes, never text of a prompt or an answer. The
// gateway builds it once, when the request ends, and nothing changes it afterwards. All other
// views of a request are written from it:
//
//	view          type         contents
//	access log    AccessLog    one JSON line per request, without allocations
//	recent ones   Log          the last records in memory, bounded in number and bytes
//	live stream   Follower     new records as server-sent events, for one reader
//	file          File         JSON lines with rotation, the input of tierway replay
//	trace         Trace        OpenTelemetry spans of the request and its attempts
//
// A [Result] states how the request ended: ok, refused, failed, truncated or client_gone. A
// [Filter] selects records by their fields; the admin API accepts it as query and as body.
//
// An [Explanation] answers a different question: what would happen to a request now, or why a
// recorded one went where it did. It has one [Step] per stage, in the order of the stages.
//
// No reader delays a request. The data plane passes records on behind the requests. Log copies a
// few references under its lock, File and the access log write through a bounded spool, and a
// Follower polls. Records that do not fit are counted and dropped.
//
// SchemaVersion is the version of the JSON form. Fields may be added within a version; a removed
// field or a changed meaning makes a new one.
package decisions
