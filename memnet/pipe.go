package memnet

import (
	"io"
	"os"
	"sync"
	"syscall"
	"time"
)

// windowBytes is the number of unread bytes of a direction at which a writer waits, as with the
// buffers of a socket. It is larger than any request or event of a test that does not test stalls.
const windowBytes = 256 << 10

// pipe is one direction of a connection. It is safe for concurrent use.
type pipe struct {
	mu            sync.Mutex
	changed       sync.Cond // its L is mu; signalled after each change
	data          []byte    // written and unread
	ended         bool      // the writer sends no more: reads return io.EOF after data
	reset         bool      // the writer has reset the connection: reads fail
	refused       bool      // the reader reads no more: writes fail
	read, written deadline  // of the reader and of the writer
}

func newPipe() *pipe {
	p := new(pipe)
	p.changed.L = &p.mu
	return p
}

// readData waits until there is data, the end, or the deadline. closed reports whether the reader's own
// end is closed; it is called with mu locked.
func (p *pipe) readData(b []byte, closed func() error) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch err := closed(); {
		case err != nil:
			return 0, err
		case p.read.passed():
			return 0, os.ErrDeadlineExceeded
		case len(b) == 0:
			return 0, nil
		case len(p.data) > 0:
			n := copy(b, p.data)
			p.data = p.data[n:]
			if len(p.data) == 0 {
				p.data = nil // its array would grow at the end and never shrink at the start
			}
			p.changed.Broadcast()
			return n, nil
		case p.reset:
			return 0, os.NewSyscallError("read", syscall.ECONNRESET)
		case p.ended:
			return 0, io.EOF
		}
		p.changed.Wait()
	}
}

// writeData waits until all of b fits into the window, an end is closed, or the deadline. It returns the
// number of bytes that the reader can receive.
func (p *pipe) writeData(b []byte, closed func() error) (n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch err := closed(); {
		case err != nil:
			return n, err
		case p.ended, p.refused:
			return n, syscall.EPIPE
		case p.written.passed():
			return n, os.ErrDeadlineExceeded
		case len(b) == 0:
			return n, nil
		}
		if free := windowBytes - len(p.data); free > 0 {
			k := min(len(b), free)
			p.data = append(p.data, b[:k]...)
			b, n = b[k:], n+k
			p.changed.Broadcast()
			continue
		}
		p.changed.Wait()
	}
}

// update changes the pipe and wakes all waiting readers and writers.
func (p *pipe) update(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	p.changed.Broadcast()
}

// deadline is the time after which a reader or a writer waits no longer. The mutex of its pipe guards it.
type deadline struct {
	at    time.Time // zero: none
	timer *time.Timer
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

// set sets the deadline. wake is called when it has passed.
func (d *deadline) set(at time.Time, wake func()) {
	d.at = at
	switch {
	case at.IsZero() || d.passed():
		d.stop()
	case d.timer == nil:
		d.timer = time.AfterFunc(time.Until(at), wake)
	default:
		d.timer.Reset(time.Until(at))
	}
}

func (d *deadline) stop() {
	if d.timer != nil {
		d.timer.Stop()
	}
}
