// Package workers manages the live workers: their connections, their health checks and their
// reported load.
//
// # Fleet
//
// A [Fleet] holds the workers of one gateway over all reloads. [Fleet.Sync] replaces its workers by a
// list of [Spec] values. A Spec that describes the same worker as before ([Spec.SameWorker]) keeps the
// [Worker] with its status. [Fleet.Run] sends the checks until its context ends; a server that backs
// several workers is checked once for all of them.
//
// # Requests
//
// [Worker.Send] sends a request to the worker's server: below the base path of its URL, with the
// worker's key instead of the client's credentials. Plain HTTP and Unix sockets use package http1,
// https uses net/http. Every error is a *http1.SendError. After a failed connect the caller calls
// [Worker.Suspect], which requests a check at once and has its result reported.
//
// # Status
//
// [Worker.Status] returns the results of the checks. [Options.OnStatus] is called when they change.
//
//	Up                          DownAfter consecutive failed checks end it, UpAfter passed ones restore it
//	Waiting, Running, KVUsage   load of the engine, from GET /metrics
//	Suspended                   the server is healthy, but the engine is asleep or paused
//	StalledSince                requests run, but the engine generates no tokens
//	Engine, Models              detected software and the list of GET /v1/models
//
// A status describes the server only. Package breaker evaluates the outcomes of requests.
package workers
