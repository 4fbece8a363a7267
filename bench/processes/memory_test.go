package processes

import "testing"

func TestMemoryIsRead(t *testing.T) {
	const status = "Name:\tx\nVmHWM:\t  23456 kB\nVmRSS:\t   12345 kB\nThreads:\tmany\n"
	for field, want := range map[string]int{"VmRSS": 12345, "VmHWM": 23456} {
		if n, err := parseKiB([]byte(status), field); n != want || err != nil {
			t.Errorf("%s: got %d, %v", field, n, err)
		}
	}
	for _, field := range []string{"Vm", "RSS", "MemAvailable", "Threads"} {
		if _, err := parseKiB([]byte(status), field); err == nil {
			t.Errorf("%s is a number", field)
		}
	}
}
