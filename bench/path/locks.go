package main

import (
	"fmt"
	"slices"
	"strings"
)

// requestCase is a kind of chat whose locks are bounded.
type requestCase struct {
	name  string
	bench string  // the benchmark of package server
	bound float64 // locks per request that requests of all pools share, as docs/architecture.md lists them
}

// cases have bounds with room for locks that come once in many requests. Two of the limited chat belong to its tenant
// and its key.
func cases() []requestCase {
	return []requestCase{
		{"plain", "BenchmarkChat$/400B$", 2.5},
		{"limited", "BenchmarkChatAs/limited", 5.5},
		{"classified", "BenchmarkChatAs/classified", 6.5},
		{"streamed", "BenchmarkChatAs/streamed", 2.5},
	}
}

// ownLocks are the files whose locks belong to one pool, worker, connection or request.
func ownLocks() []string {
	return []string{"routing/", "queue/", "breaker/", "workers/", "http1/", "server/control/evidence.go",
		"server/control/workerstats.go", "server/intake/upload.go", "server/proxy/answer.go", "server/proxy/handover.go",
		"server/proxy/queue.go", "server/proxy/watchdog.go", "server/conns.go"}
}

// consumerLocks are the files whose locks the consumer of records takes, behind the request.
func consumerLocks() []string {
	return []string{"decisions/log.go", "server/control/last_used.go", "spool/", "telemetry/tier.go",
		"telemetry/tenants.go"}
}

// sharedLocks returns the locks of a request that requests of all pools share. It has none of a limits' queue to Redis.
func sharedLocks(seen counts) (shared []place) {
	others := append(ownLocks(), consumerLocks()...)
	for _, l := range seen.locks {
		if !slices.ContainsFunc(others, func(other string) bool { return strings.HasPrefix(l.file, other) }) {
			shared = append(shared, l)
		}
	}
	return shared
}

// checkLocks reports the shared locks of a case, and returns an error if they are more than its bound.
func checkLocks(c requestCase, seen counts) error {
	sum, text := 0.0, ""
	for _, l := range sharedLocks(seen) {
		sum += l.times
		text += fmt.Sprintf("%9.3f  %s:%d\n", l.times, l.file, l.line)
	}
	fmt.Printf("%s: %.1f locks that requests of all pools share, at most %.1f\n%s", c.name, sum, c.bound, text)
	if sum > c.bound {
		return fmt.Errorf("%s: a request takes %.1f shared locks instead of %.1f: docs/architecture.md lists them", c.name,
			sum, c.bound)
	}
	return nil
}
