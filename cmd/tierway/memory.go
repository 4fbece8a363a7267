package main

import (
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
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
	least := func(n int64, ok bool) {
		if ok && n < memory {
			memory, known = n, true
		}
	}
	least(memoryTotal(root))
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
			least(fileNumber(root, path.Join(mount, group, file)))
			if group == "/" {
				break
			}
		}
	}
	return memory, known
}

// memoryTotal returns the machine's memory.
func memoryTotal(root fs.FS) (int64, bool) {
	info, err := fs.ReadFile(root, "proc/meminfo")
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(info)) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "MemTotal:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 10, 64)
			return kib << 10, err == nil && kib > 0
		}
	}
	return 0, false
}

// fileNumber returns the positive number that is a file's content.
func fileNumber(root fs.FS, name string) (int64, bool) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil && n > 0
}
