// Package kvstream reads the KV-cache events of engines. It reads them without gaps, or resets the
// reader's knowledge of the engine's cache.
//
// A [Stream] belongs to one publisher: a worker, or one data-parallel rank of a worker. It gives
// batches to a [Sink] in the order of their sequence numbers:
//
//	s := kvstream.New(kvstream.Config{Replay: "tcp://10.0.0.7:5657"}, sink)
//	s.Follow(ctx, "tcp://10.0.0.7:5557")
//
// Follow connects to a publisher that binds its address, and connects again after an error. [Serve] reads
// publishers that dial: it accepts the connections of many publishers on one address, and finds the
// stream of a message by its topic.
//
// # Gaps
//
// Publishers drop messages when a reader is slow, and send no earlier messages to a new reader. The
// sequence number shows the gap, and the replay endpoint fills it:
//
//	observation                                    action
//	number above the expected one                  replay of the missing numbers
//	number up to an earlier one of the connection  the engine restarted: reset, replay from 0
//	first number of a connection up to the last    the engine restarted: reset, replay from 0
//	number up to the last with a later time        the engine restarted: reset, replay from 0
//	number that a replay has applied               duplicate, dropped
//	number and time of the last message            duplicate, dropped
//	number up to the last of a replaced connection late, dropped; after lateMessages a restart
//	the number 2^64-1                              dropped: it marks the end of a replay
//	a message that is no batch                     its events are lost: the sink is reset
//	connected again after a loss                   replay from the last known number on
//	the replay has no batch at all                 the engine has published nothing: its cache is empty
//	the replay has another batch at that number    the engine restarted: reset, replay from 0
//	the replay begins too late or has a hole       reset, then the later batches are applied
//	the replay has a message that is no batch      reset, then the later batches are applied
//	no replay endpoint, or no answer               reset
//
// After a replay that failed the next one is requested [RetryReplay] later; until then each of these
// observations means a reset. During a replay no live message is read; the publisher's queue and TCP
// hold them.
//
// The numbers decide before the times, because the clock of a restarted engine may be behind. After maxFaults
// messages within faultWindow that are no batches, no message is read until the window ends.
//
// # State
//
// A stream is live while a connection of it is up and the sink has all events up to now, or those since a
// reset. It is not live during a replay: the engine may have removed blocks that the sink still has. The
// blocks of a sink are used for routing only while its stream is live. They are the whole cache if
// [Begun] was reported after the last reset; otherwise the engine may have blocks from before the first
// batch.
package kvstream
