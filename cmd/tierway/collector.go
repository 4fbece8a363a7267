package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// mostCollectorPercent lets the heap grow to five times its live data before a collection. The
	// heap of a usual gateway is small and its garbage consists of many short requests: Go's default of 100
	// would collect a hundred times per second.
	mostCollectorPercent = 400
	// collectorGrowth bounds the growth of a large heap, such as that of a million keys, for which Go's default is enough.
	collectorGrowth = 400 << 20
)

// tuneCollector sets the GC percentage, now and after each collection, unless GOGC is set.
func tuneCollector() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(mostCollectorPercent)
		tuneAfterCollection(mostCollectorPercent)
	}
}

// tuneAfterCollection sets the GC percentage after the next collection, and after each later one. The finalizer of an
// unreachable object runs then. now is the percentage in force.
func tuneAfterCollection(now int) {
	runtime.SetFinalizer(new([16]byte), func(*[16]byte) {
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(live)
		next := collectorPercent(live[0].Value.Uint64())
		if next != now { // setting it stops all goroutines for a moment
			debug.SetGCPercent(next)
		}
		tuneAfterCollection(next)
	})
}

// collectorPercent returns the GC percentage for a heap with that much live data in bytes, in steps of 50.
func collectorPercent(live uint64) int {
	const least, step = 100, 50
	percent := int(collectorGrowth * 100 / max(live, 1))
	return min(max(percent/step*step, least), mostCollectorPercent)
}
