package server

import (
	"bytes"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"tierway/config"
	"tierway/decisions"
)

// decisionFile writes records as JSON lines. Its own goroutine encodes and writes
// them: a request leaves its record in a queue and goes on, whatever the disk does.
// What the queue or the disk does not take is counted and lost. It is safe for
// concurrent use.
type decisionFile struct {
	to      *rotated
	log     *slog.Logger
	recover func(work string, step func() error) error
	written atomic.Int64 // records
	dropped atomic.Int64 // records

	mu      sync.Mutex // guards waiting
	waiting []*decisions.Decision

	// of run's goroutine alone
	taken      []*decisions.Decision
	line       []byte
	lines      []byte
	gathered   int64 // records in lines
	complained time.Time
	untold     int64 // records dropped since the last complaint, or since there was none
	ailing     bool
}

const (
	// maxWaitingRecords bounds the queue: what comes in one delay at 40,000
	// requests a second, in some 30 MB.
	maxWaitingRecords = 8192
	// recordDelay is how late a record may come to the file. A crash loses what
	// came within it.
	recordDelay = 200 * time.Millisecond
	// recordBatch is how many bytes are written at once: a system call for some 50
	// records.
	recordBatch = 256 << 10
	// complaintEvery bounds how often the log tells that records are lost.
	complaintEvery = time.Minute
)

// errNoJSON is the cause where a record has a number that is none.
var errNoJSON = errors.New("a record has a number that JSON has not")

// openDecisionFile opens the file of a configuration that names one, so that a path
// which cannot be written is an error at the start. recover is runRecovered of a
// Server.
func openDecisionFile(c config.Decisions, log *slog.Logger,
	recover func(work string, step func() error) error) (*decisionFile, error) {
	f := &decisionFile{log: log, recover: recover,
		to: &rotated{path: c.File, maxSize: int64(c.MaxSize), files: c.MaxFiles}}
	if err := f.to.open(); err != nil {
		return nil, err
	}
	return f, nil
}

// write queues a record, which nobody may change afterwards. It never waits.
func (f *decisionFile) write(d *decisions.Decision) {
	f.mu.Lock()
	full := len(f.waiting) >= maxWaitingRecords
	if !full {
		f.waiting = append(f.waiting, d)
	}
	f.mu.Unlock()
	if full {
		f.dropped.Add(1)
	}
}

// run writes what is queued until done is closed, then the rest, and closes the
// file.
func (f *decisionFile) run(done <-chan struct{}) {
	tick := time.NewTicker(recordDelay)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			f.flush()
		case <-done:
			f.flush()
			f.to.close()
			return
		}
	}
}

// close closes the file, after run or in its place.
func (f *decisionFile) close() {
	if f != nil {
		f.to.close()
	}
}

// flush writes what is queued.
func (f *decisionFile) flush() {
	f.mu.Lock()
	f.waiting, f.taken = f.taken[:0], f.waiting
	f.mu.Unlock()
	if len(f.taken) > 0 && f.to.look() {
		f.log.Info("decisions.file was moved or removed: it is begun anew", "file", f.to.path)
	}
	for next := 0; next < len(f.taken); {
		err := f.recover("writing decisions", func() error {
			for next < len(f.taken) {
				next++
				f.gather(f.taken[next-1])
			}
			return nil
		})
		if err != nil { // a panic on this one; the others are written
			f.lost(1, err)
		}
	}
	f.writeOut()
	clear(f.taken) // the records are not kept for this
}

// gather adds a record to the lines that are written together.
func (f *decisionFile) gather(d *decisions.Decision) {
	line, ok := appendRecord(f.line[:0], d)
	if !ok {
		f.lost(1, errNoJSON)
		return
	}
	f.line = append(line, '\n')
	if len(f.lines) > 0 && (len(f.lines)+len(f.line) > recordBatch || !f.to.fits(len(f.lines)+len(f.line))) {
		f.writeOut()
	}
	f.lines = append(f.lines, f.line...)
	f.gathered++
}

// writeOut writes the gathered lines.
func (f *decisionFile) writeOut() {
	if f.gathered == 0 {
		return
	}
	n, err := f.to.write(f.lines)
	whole := int64(bytes.Count(f.lines[:n], []byte{'\n'}))
	f.written.Add(whole)
	if lost := f.gathered - whole; err != nil {
		f.lost(lost, err)
	} else if f.ailing {
		f.ailing = false
		f.log.Info("decisions are written to their file again", "file", f.to.path, "dropped", f.untold)
		f.untold = 0
	}
	f.lines, f.gathered = f.lines[:0], 0
}

// lost counts records that could not be written, and says so once in a while.
func (f *decisionFile) lost(records int64, err error) {
	f.dropped.Add(records)
	f.untold += records
	if now := time.Now(); f.complained.IsZero() || now.Sub(f.complained) >= complaintEvery {
		f.complained, f.ailing = now, true
		f.log.Warn("decisions cannot be written to their file; requests are served all the same", "file", f.to.path, "dropped", f.untold, "cause", err.Error())
		f.untold = 0
	}
}
