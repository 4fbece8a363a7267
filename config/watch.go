package config

import (
	"bytes"
	"context"
	"time"
)

// Watch calls changed whenever the file at path has other bytes than before, at
// first than when Watch was called, until ctx ends. It reads the file every so often, and so sees what an editor
// puts in its place and what Kubernetes links to anew. Content counts once it is
// the same twice in a row; a file that is missing or cannot be read for a while is
// no change. changed runs on Watch's goroutine: while it runs, nothing is read.
func Watch(ctx context.Context, path string, every time.Duration, changed func()) {
	watch(ctx, func() ([]byte, error) { return readFile(path) }, every, changed)
}

// watch is Watch of whatever read returns.
func watch(ctx context.Context, read func() ([]byte, error), every time.Duration, changed func()) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	known, err := read()
	begun := err == nil // else the first content is what the program began without
	last, lastErr := known, err
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now, err := read()
		settled := err == nil && lastErr == nil && bytes.Equal(now, last)
		last, lastErr = now, err
		if settled && (!begun || !bytes.Equal(now, known)) {
			known, begun = now, true
			changed()
		}
	}
}
