package main

import (
	"fmt"
	"io"
	"time"

	"tierway/bench/processes"
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
	before, err := processes.ReadMemory(b.targets[tierway].pid)
	if err != nil {
		return err
	}
	if _, err := b.runChecked(job{Addr: warm.Addr, Key: b.key, Hold: o.streams}); err != nil {
		return err
	}
	time.Sleep(settleTime)
	during, err := processes.ReadMemory(b.targets[tierway].pid)
	if err != nil {
		return err
	}
	f := footprint{setup: b.setup, Streams: o.streams, BeforeKiB: before.Now, DuringKiB: during.Now,
		PerStream: float64(during.Now-before.Now) / float64(o.streams), Ceiling: streamCeiling}
	if o.asJSON {
		return encode(out, f)
	}
	_, err = fmt.Fprintf(out,
		"%s: %d idle streams, resident memory %d KiB before and %d KiB during: %.1f KiB a stream, at most %.0f %s\n",
		f.Tierway, f.Streams, f.BeforeKiB, f.DuringKiB, f.PerStream, f.Ceiling, verdict(f.PerStream <= f.Ceiling))
	return err
}
