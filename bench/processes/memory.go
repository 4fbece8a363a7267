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
func ReadMemory(pid int) (m Memory, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err == nil {
		m.Now, err = parseKiB(status, "VmRSS")
	}
	if err == nil {
		m.Peak, err = parseKiB(status, "VmHWM")
	}
	if err != nil {
		return m, fmt.Errorf("reading the memory of process %d: %w", pid, err)
	}
	return m, nil
}

// AvailableMemory returns the memory in KiB that the machine has for more processes.
func AvailableMemory() (kib int, err error) {
	info, err := os.ReadFile("/proc/meminfo")
	if err == nil {
		kib, err = parseKiB(info, "MemAvailable")
	}
	if err != nil {
		return 0, fmt.Errorf("reading the memory of the machine: %w", err)
	}
	return kib, nil
}

// parseKiB returns a field of /proc/PID/status or /proc/meminfo, which is not the first one.
func parseKiB(text []byte, field string) (int, error) {
	_, rest, ok := bytes.Cut(text, []byte("\n"+field+":"))
	if !ok {
		return 0, fmt.Errorf("there is no %s", field)
	}
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	number := bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(line), []byte("kB")))
	kib, err := strconv.Atoi(string(number))
	if err != nil {
		return 0, fmt.Errorf("%s is %q: %w", field, line, err)
	}
	return kib, nil
}
