package admin

import (
	"fmt"
	"os"
	"runtime/metrics"
	"time"
)

// processorMeter measures the processor cores that the process uses. It needs external locking; the zero
// processorMeter has no measurement.
type processorMeter struct {
	at    time.Time
	used  time.Duration
	cores *float64 // of the last interval; nil: unknown
}

// sample ends an interval at now and returns the number of cores that it used on average; nil if it is the first
// one, or if the system does not report the processor time.
func (m *processorMeter) sample(now time.Time) *float64 {
	used := processorTime()
	m.cores = nil
	if m.used > 0 {
		m.cores = new((used - m.used).Seconds() / now.Sub(m.at).Seconds())
	}
	m.at, m.used = now, used
	return m.cores
}

// residentMemory returns the resident memory of the process in bytes. Where /proc does not have it, it
// returns the memory that the Go runtime has in use.
func residentMemory() int64 {
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		var size, resident int64 // in pages
		if _, err := fmt.Sscan(string(text), &size, &resident); err == nil {
			return resident * int64(os.Getpagesize())
		}
	}
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return int64(samples[0].Value.Uint64() - samples[1].Value.Uint64())
}
