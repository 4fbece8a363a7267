package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"
)

const (
	// settle lets buffers of opening a stream be collected and the kernel's count
	// follow: the collector runs at least every two minutes, but opening thousands
	// of streams has already made it run many times.
	settle = 3 * time.Second

	// streamCeiling is the budget's first bound on the memory of an idle stream.
	streamCeiling = 56
)

// footprint is what idle streams cost the gateway.
type footprint struct {
	setup
	Streams   int     `json:"streams"`
	BeforeKiB int     `json:"rss_before_kib"`
	DuringKiB int     `json:"rss_during_kib"`
	PerStream float64 `json:"kib_a_stream"`
	Ceiling   float64 `json:"ceiling"`
}

// memory holds streams open, after one event each, and says by how much the
// gateway grew.
func (b *bench) memory(o options, out io.Writer) error {
	warm := job{Addr: b.targets[tierway].addr, Key: b.key, Shape: "streams", Connections: o.connections, Seconds: 1}
	if _, err := b.whole(warm); err != nil {
		return err
	}
	time.Sleep(settle)
	before, err := rss(b.targets[tierway].pid)
	if err != nil {
		return err
	}
	if _, err := b.whole(job{Addr: warm.Addr, Key: b.key, Hold: o.streams}); err != nil {
		return err
	}
	time.Sleep(settle)
	during, err := rss(b.targets[tierway].pid)
	if err != nil {
		return err
	}
	f := footprint{setup: b.setup, Streams: o.streams, BeforeKiB: before, DuringKiB: during,
		PerStream: float64(during-before) / float64(o.streams), Ceiling: streamCeiling}
	if o.asJSON {
		return encode(out, f)
	}
	_, err = fmt.Fprintf(out,
		"%s: %d idle streams, resident memory %d KiB before and %d KiB during: %.1f KiB a stream, at most %.0f %s\n",
		f.Tierway, f.Streams, f.BeforeKiB, f.DuringKiB, f.PerStream, f.Ceiling, verdict(f.PerStream <= f.Ceiling))
	return err
}

// rss is the resident memory of a process in KiB.
func rss(pid int) (int, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("reading the memory of process %d: %w", pid, err)
	}
	return rssOf(status)
}

// rssOf finds the resident memory in what Linux says about a process.
func rssOf(status []byte) (int, error) {
	for line := range bytes.Lines(status) {
		value, ok := bytes.CutPrefix(line, []byte("VmRSS:"))
		if !ok {
			continue
		}
		kib, err := strconv.Atoi(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(value), []byte("kB")))))
		if err != nil {
			return 0, fmt.Errorf("reading VmRSS %q: %w", value, err)
		}
		return kib, nil
	}
	return 0, fmt.Errorf("the process has no VmRSS")
}
