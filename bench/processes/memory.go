package processes

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// Memory is the resident memory of a process in KiB.
type Memory struct {
	Now  int // VmRSS
	Peak int // VmHWM, since the start of the process
}

// ReadMemory returns the memory of a running process.
func ReadMemory(pid int) (Memory, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Memory{}, fmt.Errorf("reading the memory of process %d: %w", pid, err)
	}
	return parseMemory(status)
}

// parseMemory reads the memory from the content of /proc/PID/status.
func parseMemory(status []byte) (m Memory, err error) {
	for _, field := range []struct {
		name string
		to   *int
	}{{"VmRSS", &m.Now}, {"VmHWM", &m.Peak}} {
		_, rest, ok := bytes.Cut(status, []byte("\n"+field.name+":"))
		if !ok {
			return m, fmt.Errorf("the process has no %s", field.name)
		}
		line, _, _ := bytes.Cut(rest, []byte("\n"))
		text := bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(line), []byte("kB")))
		if *field.to, err = strconv.Atoi(string(text)); err != nil {
			return m, fmt.Errorf("reading %s %q: %w", field.name, line, err)
		}
	}
	return m, nil
}
