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
	// settleTime is the pause in which the gateway frees the buffers of opening streams, and
	// the collector of -watched receives the last spans.
	settleTime = 3 * time.Second

	// streamCeiling is the budget's minimum requirement for the memory of an idle stream, in
	// KiB.
	streamCeiling = 56
)

// footprint is the gateway's memory with and without idle streams.
type footprint struct {
	setup
	Streams   int     `json:"streams"`
	BeforeKiB int     `json:"rss_before_kib"`
	DuringKiB int     `json:"rss_during_kib"`
	PerStream float64 `json:"kib_a_stream"`
	Ceiling   float64 `json:"ceiling"`
}

// memory keeps streams open after their first event and reports the growth of the gateway's
// memory.
func (b *bench) memory(o options, out io.Writer) error {
	warm := job{Addr: b.targets[tierway].addr, Key: b.key, Shape: "streams", Connections: o.connections, Seconds: 1}
	if _, err := b.runChecked(warm); err != nil {
		return err
	}
	time.Sleep(settleTime)
	before, err := rss(b.targets[tierway].pid)
	if err != nil {
		return err
	}
	if _, err := b.runChecked(job{Addr: warm.Addr, Key: b.key, Hold: o.streams}); err != nil {
		return err
	}
	time.Sleep(settleTime)
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

// rss returns the resident memory of a process in KiB.
func rss(pid int) (int, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("reading the memory of process %d: %w", pid, err)
	}
	return parseRSS(status)
}

// parseRSS returns the resident memory in KiB from the content of /proc/PID/status.
func parseRSS(status []byte) (int, error) {
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
