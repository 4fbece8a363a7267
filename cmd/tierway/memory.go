package main

import (
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
)

// limitMemory sets the memory limit of the garbage collector, unless GOMEMLIMIT does, to nine
// tenths of the available memory: the heap may grow to five times its live data and must not
// exceed the machine. The rest is for stacks and other processes.
func limitMemory() {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if memory, known := memoryOf(os.DirFS("/")); known {
		debug.SetMemoryLimit(memory / 10 * 9)
	}
}

// memoryOf returns the memory that Linux grants this process: that of the machine, or the limit
// of one of its control groups. root is the root of the file system.
func memoryOf(root fs.FS) (memory int64, known bool) {
	memory = math.MaxInt64
	least := func(n int64) {
		if n > 0 && n < memory {
			memory, known = n, true
		}
	}
	least(numberIn(root, "proc/meminfo", "MemTotal: %d kB") << 10)
	groups, _ := fs.ReadFile(root, "proc/self/cgroup") // kernels without control groups lack the file
	for line := range strings.Lines(string(groups)) {
		// hierarchy:controllers:path; version 2 has no controllers.
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) < 3 {
			continue
		}
		mount, file := "sys/fs/cgroup", "memory.max"
		switch {
		case parts[1] == "memory":
			mount, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		case parts[1] != "":
			continue
		}
		// The limit of the group, then of its parents. In a container, the path may be the host's,
		// and only the mount exists.
		for group := path.Clean("/" + parts[2]); ; group = path.Dir(group) {
			least(numberIn(root, path.Join(mount, group, file), "%d"))
			if group == "/" {
				break
			}
		}
	}
	return memory, known
}

// numberIn returns the positive number in a file of the given format; 0 if there is none.
func numberIn(root fs.FS, name, format string) (n int64) {
	text, _ := fs.ReadFile(root, name) // a missing file has no number
	if _, err := fmt.Sscanf(string(text), format, &n); err != nil {
		return 0
	}
	return max(0, n)
}

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
