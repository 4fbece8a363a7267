// Package rig runs a gateway in front of simulated engines, which run in the test process.
//
// A test runs against the binary on the loopback interface, or in the [Environment] of package bubble:
// a gateway in the test's process, on an in-memory network, in virtual time.
//
// [New] makes the engines, [Rig.Listen] starts them and [Rig.Serve] starts the gateway with
// [Settings]. [Rig.Post] and [Rig.Send] return a whole [Reply], [Rig.Open] returns a [Stream].
// A [Worker] can fail in many ways through its chaos.Handler. A prompt with [PauseMark] stays in
// flight until [Rig.ResumePaused].
//
// When a test ends, the rig checks that nothing is in flight or queued and that each started
// request was counted once.
package rig
