package config

import (
	"context"
	"time"
)

// WatchConfig configures Watch. All fields except Loaded and Stale are required.
type WatchConfig struct {
	Path   string
	Every  time.Duration // interval between two reads
	Loaded string        // Hash of the loaded content; empty: any content is a change
	Wanted func() bool   // whether to read the file now
	// Stale reports whether the file could not be read when it was last loaded. While it is true, any
	// content is a change. nil: never.
	Stale func() bool
	// Changed is called after a change, on Watch's goroutine: no read happens while it runs.
	Changed func()
}

// Watch calls c.Changed whenever the file differs from the content that was loaded or reported
// last, until ctx ends. It polls the file, and so notices files that editors replace and links
// that Kubernetes updates. A change counts after two equal reads. A missing or unreadable file
// is not a change. After a period in which Wanted was false, any content counts as one change.
// A load may find the file missing although Watch does not; Stale makes Watch report it again.
// If the file system blocks, Watch may outlive ctx.
func Watch(ctx context.Context, c WatchConfig) {
	watch(ctx, c, func() ([]byte, error) { return readFile(c.Path) })
}

// watch is Watch with another read function.
func watch(ctx context.Context, c WatchConfig, read func() ([]byte, error)) {
	tick := time.NewTicker(c.Every)
	defer tick.Stop()
	known, last := c.Loaded, ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !c.Wanted() {
			known, last = "", ""
			continue
		}
		now := "" // no content has this hash
		if src, err := read(); err == nil {
			now = hashOf(src)
		}
		settled := now != "" && now == last
		last = now
		if settled && (now != known || c.Stale != nil && c.Stale()) {
			known = now
			c.Changed()
		}
	}
}
