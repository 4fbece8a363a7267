package spool

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"time"
)

// FileConfig configures a File.
type FileConfig struct {
	Path    string
	Key     string // key in config.yaml that has the file or its directory; messages name it
	MaxSize int64  // of one file, in bytes
	Files   int    // kept by rotation, including the current one
	Log     *slog.Logger
	// Recover runs a step and returns an error if the step panics.
	Recover func(work string, step func() error) error
}

// File writes records of type T as JSON lines. Its own goroutine encodes and writes them, so a request never
// waits for the disk. Records that do not fit in the spool or on the disk are counted and lost. It
// is safe for concurrent use.
type File[T any] struct {
	*Spool[T]
	config FileConfig

	// used by the writing goroutine
	to       rotated
	lines    bytes.Buffer
	line     bytes.Buffer
	encoder  *json.Encoder // writes to line
	gathered int           // records in lines
	warned   time.Time
	unlogged int // records lost since the last warning
	failing  bool
}

const (
	// maxWaitingRecords bounds the spool to the records of one delay at 80,000 requests/s: some 30 MB
	// of decisions.
	maxWaitingRecords = 8192
	// recordDelay is the maximum delay from Add to the file. A crash loses the records of that
	// time.
	recordDelay = 100 * time.Millisecond
	// recordsAtOnce is how many records one batch encodes. bytesAtOnce is how much one system call
	// writes: some 50 decisions.
	recordsAtOnce = 1024
	bytesAtOnce   = 256 << 10
	// warnEvery is the minimum time between two warnings about lost records.
	warnEvery = time.Minute
)

// OpenFile opens the file and fails if it cannot be written. Run writes the records. The caller
// must close the file after Run has returned.
func OpenFile[T any](c FileConfig) (*File[T], error) {
	f := &File[T]{config: c, to: rotated{path: c.Path, key: c.Key, maxSize: c.MaxSize, files: c.Files}}
	if err := f.to.open(); err != nil {
		return nil, err
	}
	f.encoder = json.NewEncoder(&f.line)
	f.Spool = New(Config[T]{
		Write: f.write,
		Max:   maxWaitingRecords,
		Batch: recordsAtOnce,
		Delay: recordDelay,
	})
	return f, nil
}

// Close closes the file. The caller must not run Run at the same time or later.
func (f *File[T]) Close() { f.to.close() }

// Files returns the names of the file and of the older ones that rotation keeps, oldest first. Some may not exist.
func (f *File[T]) Files() (names []string) {
	real := f.config.Path
	if target, err := filepath.EvalSymlinks(real); err == nil {
		real = target
	}
	for i := f.config.Files - 1; i > 0; i-- {
		names = append(names, olderName(real, i))
	}
	return append(names, real)
}

// write writes a batch. Records that cannot be written are lost.
func (f *File[T]) write(_ context.Context, records []T) (lost int, _ error) {
	if f.to.checkMoved() {
		f.config.Log.Info("a file of "+f.config.Key+" was moved or removed; opening a new one", "file", f.to.path)
	}
	for _, one := range records {
		f.line.Reset()
		err := f.config.Recover("encoding a record of "+f.config.Key, func() error { return f.encoder.Encode(one) })
		if err != nil {
			lost += f.countLost(1, err)
			continue
		}
		if all := f.lines.Len() + f.line.Len(); all > bytesAtOnce || !f.to.fits(all) {
			lost += f.writeOut()
		}
		f.lines.Write(f.line.Bytes())
		f.gathered++
	}
	return lost + f.writeOut(), nil
}

// writeOut writes the gathered lines and returns the number of lost records.
func (f *File[T]) writeOut() (lost int) {
	if f.gathered == 0 {
		return 0
	}
	n, err := f.to.write(f.lines.Bytes())
	if err != nil {
		lost = f.countLost(f.gathered-bytes.Count(f.lines.Bytes()[:n], []byte{'\n'}), err)
	} else if f.failing {
		f.failing = false
		f.config.Log.Info(f.config.Key+" accepts records again", "file", f.to.path, "dropped", f.unlogged)
		f.unlogged = 0
	}
	f.lines.Reset()
	f.gathered = 0
	return lost
}

// countLost counts lost records and returns their number. It logs a warning at most once per
// warnEvery.
func (f *File[T]) countLost(records int, err error) int {
	f.unlogged += records
	if now := time.Now(); f.warned.IsZero() || now.Sub(f.warned) >= warnEvery {
		f.warned, f.failing = now, true
		f.config.Log.Warn(f.config.Key+" cannot be written; dropping records, requests continue",
			"file", f.to.path, "dropped", f.unlogged, "cause", err.Error())
		f.unlogged = 0
	}
	return records
}
