package http1

import (
	"io"
	"net/http"
)

// maxSkipped is the number of bytes that are read from the rest of a request's body to keep its connection.
const maxSkipped = 256 << 10

// Read is part of the request's body. A body that breaks off is an io.ErrUnexpectedEOF.
func (x *served) Read(p []byte) (int, error) {
	if x.bodyClosed || x.over.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	return x.readBody(p)
}

// Close is part of the request's body.
func (x *served) Close() error {
	x.bodyClosed = true
	return nil
}

func (x *served) readBody(p []byte) (n int, err error) {
	if x.unread == 0 {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), x.unread)]
	if len(p) == 0 {
		return 0, nil
	}
	if c := x.c; c.r < c.w {
		n = c.takeBuffered(p)
	} else {
		c.dropBuffer()
		if n, err = c.readSocket(p); err != nil {
			c.broken = true
			c.cancel() // as net/http does
			return n, err
		}
	}
	if x.unread -= int64(n); x.unread == 0 {
		x.watchClient()
		return n, io.EOF
	}
	return n, nil
}

// skipBody reads the rest of a body that is not too long, and reports whether all of the body was read.
func (x *served) skipBody() bool {
	switch {
	case x.unread == 0:
		return true
	case x.unread > maxSkipped:
		return false
	}
	var scratch [4 << 10]byte
	for x.unread > 0 {
		if _, err := x.readBody(scratch[:]); err != nil {
			break
		}
	}
	return x.unread == 0
}

// watchClient cancels the request when its client leaves. It is called once, when the request was read.
func (x *served) watchClient() {
	c := x.c
	if c.r == c.w {
		c.dropBuffer()
	}
	if hasWatcher && c.raw != nil {
		c.cancelIfLeft()
		return
	}
	c.background.start(c.socket, c.cancel)
}
