package spool

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// WriterConfig configures a Writer. Only To is required.
type WriterConfig struct {
	To io.Writer // only the Writer's own goroutine calls it
	// Max bounds the waiting bytes, and separately those being written; 0 is 4 MiB, some 8,000
	// lines of an access log.
	Max int
	// Delay is the time for which a line may wait for others, so that they share a system call; 0
	// writes it at once.
	Delay time.Duration
	// OnLoss is called with over false when lines begin to be dropped. It is called again with over
	// true when To accepts lines and none was dropped for a second; lost is then their total
	// number. It may write to the Writer. Nil: losses are only counted.
	OnLoss func(lost int64, over bool)
}

const (
	maxWaiting = 4 << 20
	// flushAt is the number of waiting bytes that ends the delay: some 100 lines. A system call per
	// line would cost more than the rest of the work on it.
	flushAt = 64 << 10
	// quietFor is the time without dropped lines after which a loss is over.
	quietFor = time.Second
)

// Writer is an io.Writer that never blocks. It is safe for concurrent use.
type Writer struct {
	config  WriterConfig
	written chan struct{} // holds one if a line waits
	full    chan struct{} // holds one if flushAt bytes wait
	lossy   chan struct{} // holds one if a line was dropped
	closing chan struct{}
	ended   chan struct{} // closed when the writing goroutine has returned
	dropped atomic.Int64
	failing atomic.Bool // To's last write failed
	torn    bool        // the last line was written in part; used by the writing goroutine
	owned   sync.WaitGroup

	mu      sync.Mutex // guards the rest
	waiting []byte
	spare   []byte // the other buffer, while nothing is being written
	closed  bool
}

// NewWriter returns a Writer. The caller must close it.
func NewWriter(c WriterConfig) *Writer {
	if c.Max <= 0 {
		c.Max = maxWaiting
	}
	w := &Writer{config: c, written: make(chan struct{}, 1), full: make(chan struct{}, 1), lossy: make(chan struct{}, 1),
		closing: make(chan struct{}), ended: make(chan struct{})}
	go w.run()
	if c.OnLoss != nil {
		w.owned.Go(w.report)
	}
	return w
}

// Write adds whole lines, all of p or nothing, and never waits. It always reports success; dropped lines
// are counted.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	if w.closed || len(w.waiting)+len(p) > w.config.Max {
		w.mu.Unlock()
		w.drop(p)
		return len(p), nil
	}
	w.waiting = append(w.waiting, p...)
	after := len(w.waiting)
	w.mu.Unlock()
	if after == len(p) {
		signal(w.written)
	}
	if after >= flushAt && after-len(p) < flushAt {
		signal(w.full)
	}
	return len(p), nil
}

// Dropped returns how many lines were dropped: because too many waited, because To
// failed, or because the Writer was closed.
func (w *Writer) Dropped() int64 { return w.dropped.Load() }

// Close writes the waiting lines for at most limit, and reports whether all were written. A write
// that hangs is abandoned with its goroutine. Later lines are dropped.
func (w *Writer) Close(limit time.Duration) bool {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		close(w.closing)
	}
	w.mu.Unlock()
	w.owned.Wait()
	select {
	case <-w.ended:
		return !w.failing.Load()
	case <-time.After(limit):
		return false
	}
}

func (w *Writer) drop(p []byte) {
	w.dropped.Add(int64(max(1, bytes.Count(p, []byte{'\n'}))))
	signal(w.lossy)
}

// run writes waiting lines until the Writer is closed.
func (w *Writer) run() {
	defer close(w.ended)
	for {
		select {
		case <-w.written:
		case <-w.closing:
			w.flush()
			return
		}
		gather(w.config.Delay, w.full, w.closing)
		w.flush()
	}
}

// flush writes the waiting lines. A newline after a partial line keeps the next one whole.
func (w *Writer) flush() {
	w.mu.Lock()
	batch := w.waiting
	w.waiting, w.spare = w.spare, nil
	w.mu.Unlock()
	if len(batch) > 0 {
		if w.torn {
			_, err := w.config.To.Write([]byte{'\n'})
			w.torn = err != nil
		}
		n, err := w.config.To.Write(batch)
		n = max(0, min(n, len(batch)))
		failed := err != nil || n < len(batch)
		if failed {
			w.torn = w.torn || n > 0 && batch[n-1] != '\n'
			w.drop(batch[n:])
		}
		w.failing.Store(failed)
	}
	if cap(batch) <= 2*flushAt { // releases the buffer of a burst
		w.mu.Lock()
		w.spare = batch[:0]
		w.mu.Unlock()
	}
}

// report calls OnLoss until the Writer is closed.
func (w *Writer) report() {
	tick := time.NewTicker(quietFor)
	defer tick.Stop()
	tick.Stop() // the first lost line starts it
	losing, reported, last := false, int64(0), int64(0)
	for {
		select {
		case <-w.closing:
			return
		case <-w.lossy:
			if lost := w.dropped.Load() - reported; !losing && lost > 0 {
				w.config.OnLoss(lost, false)
				losing, last = true, w.dropped.Load()
				tick.Reset(quietFor)
			}
		case <-tick.C:
			now := w.dropped.Load()
			if losing && now == last && !w.failing.Load() && w.roomy() {
				w.config.OnLoss(now-reported, true)
				losing, reported = false, now
				tick.Stop()
			}
			last = now
		}
	}
}

// roomy reports whether at most half of Max is waiting.
func (w *Writer) roomy() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.waiting) <= w.config.Max/2
}

// signal wakes the goroutine that receives from c, now or when it receives next.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
