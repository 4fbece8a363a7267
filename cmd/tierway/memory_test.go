package main

import (
	"testing"
	"testing/fstest"
)

// TestMemoryIsTheLowestOfAllLimits: the limits are the machine's and those of the
// control groups of the process, in both versions of their files.
func TestMemoryIsTheLowestOfAllLimits(t *testing.T) {
	const meminfo = "MemTotal:       24680940 kB\nMemFree:          436820 kB\n"
	const machine = 24680940 << 10
	for name, c := range map[string]struct {
		files map[string]string
		want  int64 // 0: not known
	}{
		"nothing": {nil, 0},
		"machine": {map[string]string{"proc/meminfo": meminfo}, machine},
		"unbounded": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n",
			"sys/fs/cgroup/memory.max": "max\n"}, machine},
		"container": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n",
			"sys/fs/cgroup/memory.max": "536870912\n"}, 512 << 20},
		"unit of systemd": {map[string]string{"proc/meminfo": meminfo,
			"proc/self/cgroup": "0::/system.slice/tierway.service\n",
			"sys/fs/cgroup/system.slice/tierway.service/memory.max": "max\n",
			"sys/fs/cgroup/system.slice/memory.max":                 "1073741824\n"}, 1 << 30},
		"version 1": {map[string]string{"proc/meminfo": meminfo,
			"proc/self/cgroup":                           "5:cpu,cpuacct:/docker/x\n4:memory:/docker/x\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "268435456\n"}, 256 << 20},
		"version 1, unbounded": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "4:memory:/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, machine},
		"odd files": {map[string]string{"proc/meminfo": "MemTotal: many kB\n", "proc/self/cgroup": "x\n0::../..\n",
			"sys/fs/cgroup/memory.max": "-1\n"}, 0},
	} {
		root := fstest.MapFS{}
		for path, text := range c.files {
			root[path] = &fstest.MapFile{Data: []byte(text)}
		}
		if got, known := memoryOf(root); known != (c.want != 0) || known && got != c.want {
			t.Errorf("%s: %d, %v, want %d", name, got, known, c.want)
		}
	}
}
