package zmtp

import "fmt"

// Message is one message. Its parts share one buffer, which the next Receive overwrites.
type Message struct {
	Parts [][]byte
	buf   []byte
	ends  []int // end of each part in buf
}

// keptBytes is the largest buffer of a message that is used for the next one. Larger messages are rare.
const keptBytes = 128 << 10

// Receive reads the next message into m. It returns an error of [ErrLimit], [ErrProtocol] or
// [ErrSilent], or of the network; after an error the caller must close the connection.
func (c *Conn) Receive(m *Message) error {
	return c.ReceiveIf(m, func([]byte) bool { return true })
}

// ReceiveIf reads as Receive does, the next message of which wanted accepts the first part. Of other
// messages it keeps the first part only: their further parts are skipped as they arrive.
func (c *Conn) ReceiveIf(m *Message, wanted func(first []byte) bool) error {
	m.reset()
	for keep := true; ; {
		flags, size, err := c.nextPart(m)
		if err != nil {
			return err
		}
		if keep {
			m.buf, err = c.appendBody(m.buf, int(size))
		} else {
			err = c.skipBody(int(size))
		}
		if err != nil {
			return err
		}
		m.ends = append(m.ends, len(m.buf))
		if len(m.ends) == 1 {
			keep = wanted(m.buf)
		}
		switch {
		case flags&flagMore != 0:
		case keep:
			at := 0
			for _, end := range m.ends {
				m.Parts = append(m.Parts, m.buf[at:end:end])
				at = end
			}
			return nil
		default:
			m.reset()
			keep = true
		}
	}
}

// nextPart reads the header of the next part of a message, and all commands before it.
func (c *Conn) nextPart(m *Message) (flags byte, size uint64, err error) {
	for {
		if flags, size, err = c.header(); err != nil {
			return 0, 0, err
		}
		if flags&flagCommand == 0 {
			return flags, size, c.checkSize(m, size)
		}
		if err := c.command(flags, size); err != nil {
			return 0, 0, err
		}
	}
}

// checkSize returns an error if the message must not have a further part of a size.
func (c *Conn) checkSize(m *Message, size uint64) error {
	maxBytes := c.limits.Bytes - len(m.buf)
	switch {
	case len(m.ends) == c.limits.Parts:
		return fmt.Errorf("%w: more than %d parts", ErrLimit, c.limits.Parts)
	case len(m.ends) == 0:
		maxBytes = min(maxBytes, c.limits.First)
	}
	if size > uint64(maxBytes) {
		return fmt.Errorf("%w: part %d has %d bytes, and may have %d", ErrLimit, len(m.ends)+1, size, maxBytes)
	}
	return nil
}

// reset makes the message empty. A large buffer is freed, because the next message may be long in coming.
func (m *Message) reset() {
	if cap(m.buf) > keptBytes {
		*m = Message{}
	}
	m.Parts, m.buf, m.ends = m.Parts[:0], m.buf[:0], m.ends[:0]
}

// appendBody reads the body of a frame. Memory grows with the bytes that have arrived, not with
// the size that the frame announces.
func (c *Conn) appendBody(buf []byte, size int) ([]byte, error) {
	const step = 64 << 10
	for size > 0 {
		n := min(size, step)
		at := len(buf)
		buf = append(buf, make([]byte, n)...) // append grows in place: no second slice is allocated
		for filled := at; filled < at+n; {
			if _, err := c.peek(1); err != nil {
				return buf, unexpectedEnd(err)
			}
			got, err := c.in.Read(buf[filled : at+n])
			if err != nil {
				return buf, unexpectedEnd(err)
			}
			filled += got
		}
		size -= n
	}
	return buf, nil
}

// skipBody reads the body of a frame and keeps none of it.
func (c *Conn) skipBody(size int) error {
	for size > 0 {
		if _, err := c.peek(1); err != nil {
			return unexpectedEnd(err)
		}
		n, err := c.in.Discard(min(size, c.in.Buffered()))
		if err != nil {
			return unexpectedEnd(err)
		}
		size -= n
	}
	return nil
}
