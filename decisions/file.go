package decisions

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"tierway/spool"
)

// FileConfig describes a File.
type FileConfig struct {
	Path    string
	MaxSize int64 // of one file, in bytes
	Files   int   // that rotation keeps, the one that is written included
	Log     *slog.Logger
	// Recover runs a step and returns an error instead of a panic.
	Recover func(work string, step func() error) error
}

// File writes records as JSON lines. Its own goroutine encodes and writes them, so a
// request never waits for the disk. Records that the spool or the disk does not take
// are counted and lost. It is safe for concurrent use.
type File struct {
	*spool.Spool[*Decision]
	config FileConfig

	// of the goroutine that writes
	to         rotated
	lines      bytes.Buffer
	line       bytes.Buffer
	encoder    *json.Encoder // to line
	gathered   int           // records in lines
	complained time.Time
	untold     int // records dropped since the last complaint, or since there was none
	ailing     bool
}

const (
	// maxWaitingRecords bounds the spool: what comes in one delay at 40,000 requests a
	// second, in some 30 MB.
	maxWaitingRecords = 8192
	// recordDelay is how late a record may come to the file. A crash loses what
	// came within it.
	recordDelay = 200 * time.Millisecond
	// recordsAtOnce are encoded and written together, and lineBytes are written with
	// one system call: some 50 records.
	recordsAtOnce = 1024
	lineBytes     = 256 << 10
	// complaintEvery bounds how often the log tells that records are lost.
	complaintEvery = time.Minute
)

// OpenFile opens a file. A path that cannot be written is an error. Records are
// written by Run, and the file must be closed after it.
func OpenFile(c FileConfig) (*File, error) {
	f := &File{config: c, to: rotated{path: c.Path, maxSize: c.MaxSize, files: c.Files}}
	if err := f.to.open(); err != nil {
		return nil, err
	}
	f.encoder = json.NewEncoder(&f.line)
	f.Spool = spool.New(spool.Config[*Decision]{Write: f.write, Max: maxWaitingRecords, Batch: recordsAtOnce, Delay: recordDelay})
	return f, nil
}

// Close closes the file, after Run or in its place.
func (f *File) Close() { f.to.close() }

// write writes records. Those that cannot be written are lost.
func (f *File) write(_ context.Context, records []*Decision) (lost int, _ error) {
	if f.to.look() {
		f.config.Log.Info("decisions.file was moved or removed: it is begun anew", "file", f.to.path)
	}
	for _, d := range records {
		f.line.Reset()
		err := f.config.Recover("encoding a decision", func() error { return f.encoder.Encode(d) })
		if err != nil {
			lost += f.lose(1, err)
			continue
		}
		if all := f.lines.Len() + f.line.Len(); all > lineBytes || !f.to.fits(all) {
			lost += f.writeOut()
		}
		f.lines.Write(f.line.Bytes())
		f.gathered++
	}
	return lost + f.writeOut(), nil
}

// writeOut writes the gathered lines and returns how many are lost.
func (f *File) writeOut() (lost int) {
	if f.gathered == 0 {
		return 0
	}
	n, err := f.to.write(f.lines.Bytes())
	if err != nil {
		lost = f.lose(f.gathered-bytes.Count(f.lines.Bytes()[:n], []byte{'\n'}), err)
	} else if f.ailing {
		f.ailing = false
		f.config.Log.Info("decisions are written to their file again", "file", f.to.path, "dropped", f.untold)
		f.untold = 0
	}
	f.lines.Reset()
	f.gathered = 0
	return lost
}

// lose returns the number of records that could not be written, and logs losses once
// in a while.
func (f *File) lose(records int, err error) int {
	f.untold += records
	if now := time.Now(); f.complained.IsZero() || now.Sub(f.complained) >= complaintEvery {
		f.complained, f.ailing = now, true
		f.config.Log.Warn("decisions cannot be written to their file; requests are served all the same", "file", f.to.path, "dropped", f.untold, "cause", err.Error())
		f.untold = 0
	}
	return records
}
