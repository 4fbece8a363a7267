package openai

import "errors"

// Page is the initial buffer of a reader.
type Page [firstBuffer]byte

// Waiter is a body that can wait without a buffer. Wait returns when bytes have arrived, or Read returns the end or an
// error at once. A Read after Wait may still wait.
type Waiter interface{ Wait() }

// fill reads once after making room. It moves and replaces the buffer, so no slice may point
// into it.
func (r *EventReader) fill() int {
	if r.waiter != nil && r.start == r.end && cap(r.buf) <= firstBuffer {
		r.move(nil)
		r.waiter.Wait()
	}
	r.makeRoom()
	if r.err != nil {
		return 0
	}
	n, err := r.r.Read(r.buf[r.end:])
	if n < 0 || n > len(r.buf)-r.end {
		n, err = 0, errors.New("reading an event: the body's reader returned an invalid byte count")
	}
	r.end += n
	r.err = err
	return n
}

// makeRoom ensures free space for at least one byte after end.
func (r *EventReader) makeRoom() {
	unread := r.end - r.start
	switch {
	case unread >= r.max:
		r.err = ErrEventTooLarge
		return
	case len(r.buf) > keptBuffer && unread < firstBuffer && r.small >= smallEvents:
		r.join = nil
		r.move(r.newBuffer())
		r.returnMemory()
	case unread == 0 && r.end > 0:
		r.move(r.buf)
	case r.end <= len(r.buf)-len(r.buf)/4 && r.end < len(r.buf):
		// There is enough room for an efficient read.
	case unread < len(r.buf) && (unread <= len(r.buf)/2 || len(r.buf) >= r.max):
		r.move(r.buf)
	case len(r.buf) == 0:
		r.move(r.newBuffer())
	default:
		r.grow(min(2*len(r.buf), r.max))
	}
}

// newBuffer returns an initial buffer, from pages if the reader has them.
func (r *EventReader) newBuffer() []byte {
	if r.pages == nil {
		return make([]byte, min(firstBuffer, r.max))
	}
	return r.pages.Get().(*Page)[:min(firstBuffer, r.max)]
}

// grow moves the unread bytes to a buffer of the given size.
func (r *EventReader) grow(size int) {
	before := r.reserved
	if r.memory != nil && size > keptBuffer {
		if r.err = r.memory.Reserve(int64(size)); r.err != nil {
			return
		}
		r.reserved = int64(size)
	}
	r.move(make([]byte, size))
	if before > 0 {
		r.memory.Return(before)
	}
}

// setBuffer replaces the buffer. If the old one is a page and the new one is not, the page goes back to the pool.
func (r *EventReader) setBuffer(buf []byte) {
	if r.pages != nil && cap(r.buf) == firstBuffer && cap(buf) != firstBuffer {
		r.pages.Put((*Page)(r.buf[:firstBuffer]))
	}
	r.buf = buf
}

// returnMemory releases the reserved memory of the buffer.
func (r *EventReader) returnMemory() {
	if r.reserved > 0 {
		r.memory.Return(r.reserved)
		r.reserved = 0
	}
}

// move copies the unread bytes to the front of buf, which becomes the buffer.
func (r *EventReader) move(buf []byte) {
	copy(buf, r.buf[r.start:r.end])
	by := r.start
	r.setBuffer(buf)
	r.start, r.next = 0, 0
	r.end -= by
	r.pos -= by
	r.line -= by
	r.lf = max(r.lf-by, 0)
}
