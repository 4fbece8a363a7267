package config

import (
	"context"
	"time"
)

// WatchConfig says which file is watched, and what for. All fields are required
// but Loaded.
type WatchConfig struct {
	Path   string
	Every  time.Duration // between two looks
	Loaded string        // Hash of the content that is no change; empty: none is known, and any is
	Wanted func() bool   // whether to look at all, now
	// Changed is told of a change. It runs on Watch's goroutine: while it runs,
	// nothing is read.
	Changed func()
}

// Watch tells whenever the file has other bytes than what was loaded or told of
// last, until ctx ends. It reads the file every so often, and so sees what an
// editor puts in its place and what Kubernetes links to anew. Content counts once
// it is the same twice in a row; a file that is missing or cannot be read for a
// while is no change. After a time in which it was not wanted, whatever is there
// counts as a change once: what was loaded meanwhile is not known. A file system
// that hangs holds Watch beyond the end of ctx.
func Watch(ctx context.Context, c WatchConfig) {
	watch(ctx, c, func() ([]byte, error) { return readFile(c.Path) })
}

// watch is Watch of whatever read returns.
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
		if settled && now != known {
			known = now
			c.Changed()
		}
	}
}
