// Package kvstream follows the KV-cache events of engines: it reads them without gaps, or reports
// that what was known of an engine's cache is void.
//
// A [Stream] belongs to one publisher: a worker, or one data-parallel rank of a worker. It gives
// batches to a [Sink] in the order of their sequence numbers:
//
//	s := kvstream.New(kvstream.Config{Replay: "tcp://10.0.0.7:5558"}, sink)
//	s.Follow(ctx, "tcp://10.0.0.7:5557")
//
// Follow connects to a publisher that binds its address, and connects again after an error. A
// publisher that dials is read by [Serve], which accepts the connections of many publishers on
// one address and tells their streams apart by topic.
//
// # Gaps
//
// Publishers drop messages when a reader is slow, and send nothing of the past to a new one. The
// sequence number shows it, and the replay endpoint repairs it:
//
//	observation                                    action
//	number above the expected one                  replay of the missing numbers
//	number below it with a later time              the engine restarted: reset, replay from 0
//	number below it otherwise                      duplicate, dropped
//	connection lost and back                       replay from the last known number on
//	the replay has another batch at that number    the engine restarted: reset, replay from 0
//	the replay begins too late or has a hole       reset, and what follows is applied
//	no replay endpoint, or no answer               reset
//
// After a replay without an answer the next one is tried [RetryReplay] later. During a replay no
// live message is read; the publisher's queue and TCP hold them.
//
// # State
//
// A stream is live while its connection is up and all events up to now were given to the sink,
// or the sink was reset. A sink uses what it knows for routing only while its stream is live. It
// knows the whole cache if [Begun] was reported after the last reset; otherwise the engine may have
// blocks from before the first batch.
package kvstream
