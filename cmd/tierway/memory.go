package main

import (
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strings"
)

// limitMemory sets the collector's memory limit where GOMEMLIMIT does not: to nine
// tenths of the memory that there is, so that a heap which may grow to five times what
// lives does not outgrow the machine. The rest is for stacks and other processes.
func limitMemory() {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if memory, known := memoryOf(os.DirFS("/")); known {
		debug.SetMemoryLimit(memory / 10 * 9)
	}
}

// memoryOf returns the memory that Linux lets this process use: the machine's, or the
// bound of a control group that the process is in. root is the file system's.
func memoryOf(root fs.FS) (memory int64, known bool) {
	memory = math.MaxInt64
	least := func(n int64) {
		if n > 0 && n < memory {
			memory, known = n, true
		}
	}
	least(numberIn(root, "proc/meminfo", "MemTotal: %d kB") << 10)
	groups, _ := fs.ReadFile(root, "proc/self/cgroup") //nolint:errcheck // a kernel without control groups has none
	for line := range strings.Lines(string(groups)) {
		// hierarchy:controllers:path, where version 2 names no controllers.
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
		// A group's own bound, then those of the groups around it. In a container the
		// path may be the host's, and only the mount exists.
		for group := path.Clean("/" + parts[2]); ; group = path.Dir(group) {
			least(numberIn(root, path.Join(mount, group, file), "%d"))
			if group == "/" {
				break
			}
		}
	}
	return memory, known
}

// numberIn returns the positive number that a file has in a place; 0 if there is none.
func numberIn(root fs.FS, name, format string) (n int64) {
	text, _ := fs.ReadFile(root, name) //nolint:errcheck // a file that is not there holds no number
	if _, err := fmt.Sscanf(string(text), format, &n); err != nil {
		return 0
	}
	return max(0, n)
}
