package processes

import "testing"

func TestResidentMemoryIsRead(t *testing.T) {
	const status = "Name:\tx\nVmHWM:\t  23456 kB\nVmRSS:\t   12345 kB\nThreads:\t1\n"
	if m, err := parseMemory([]byte(status)); m != (Memory{Now: 12345, Peak: 23456}) || err != nil {
		t.Errorf("got %+v, %v", m, err)
	}
	for _, status := range []string{"Name:\tx\n", "Name:\tx\nVmRSS:\t1 kB\n",
		"Name:\tx\nVmHWM:\t1 kB\nVmRSS:\tmany kB\n"} {
		if _, err := parseMemory([]byte(status)); err == nil {
			t.Errorf("%q is accepted", status)
		}
	}
}
