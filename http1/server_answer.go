package http1

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// heldBytes is the size up to which an answer's body waits for the handler's end or Flush. If it is the whole body,
	// it gets a Content-Length.
	heldBytes = 2 << 10
	// resetDelay is the time for a client to read the answer, before its unread input resets the connection.
	resetDelay = 500 * time.Millisecond
)

// served is a request in progress: the reader of its body, and the writer of its answer. The handler may use it in one
// goroutine at a time.
type served struct {
	c    *servedConn
	head requestHead
	r    http.Request
	over atomic.Bool // the handler and its rest have returned: they must not use the request any more

	unread     int64 // bytes of the request's body
	arrived    bool  // the body has arrived with the head, so no deadline can end its reading
	bodyClosed bool

	status    int   // 0 until WriteHeader
	committed bool  // the head is complete
	length    int64 // Content-Length; -1 without
	written   int64 // bytes of the body
	chunked   bool
	closeLast bool   // the connection ends with the answer
	hasType   bool   // the head has a Content-Type, or none is wanted
	hasDate   bool   // the head has a Date
	timed     bool   // the handler has set the write deadline
	rest      func() // see ContinueAfterHandler
	err       error
}

// Header is part of http.ResponseWriter.
func (x *served) Header() http.Header {
	if x.over.Load() { // the next request uses the map
		return http.Header{}
	}
	return x.c.header
}

// WriteHeader is part of http.ResponseWriter. Interim answers leave at once.
func (x *served) WriteHeader(status int) {
	c := x.c
	if x.status != 0 || x.over.Load() {
		return
	}
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("the status %d has not three digits", status))
	}
	c.head = x.appendFields(appendStatus(c.head[:0], status))
	if status < http.StatusOK && status != http.StatusSwitchingProtocols {
		x.write(append(c.head, "\r\n"...))
		x.length, x.hasType, x.hasDate = -1, false, false
		return
	}
	x.status, c.held = status, c.held[:0]
}

// appendStatus appends a status line.
func appendStatus(b []byte, status int) []byte {
	b = strconv.AppendInt(append(b, "HTTP/1.1 "...), int64(status), 10)
	text := http.StatusText(status)
	if text == "" {
		text = "status code " + strconv.Itoa(status)
	}
	return append(append(append(b, ' '), text...), "\r\n"...)
}

// appendFields appends the fields of the answer's header, except for those of the connection, which it only reads.
func (x *served) appendFields(b []byte) []byte {
	for key, values := range x.c.header {
		switch key {
		case "Content-Length":
			if n, err := strconv.ParseInt(strings.Join(values, ","), 10, 64); err == nil && n >= 0 {
				x.length = n
			}
			continue
		case "Connection":
			isClose := func(v string) bool { return strings.EqualFold(v, "close") }
			x.closeLast = x.closeLast || slices.ContainsFunc(values, isClose)
			continue
		case "Transfer-Encoding", "Trailer":
			continue
		case "Content-Type", "Content-Encoding":
			x.hasType = true
		case "Date":
			x.hasDate = true
		}
		if !isToken(key) {
			continue
		}
		for _, value := range values {
			if !isFieldValue(value) {
				value = strings.NewReplacer("\n", " ", "\r", " ").Replace(value) // as net/http does
			}
			b = appendField(b, key, value)
		}
	}
	return b
}

func appendField(b []byte, key, value string) []byte {
	return append(append(append(append(b, key...), ": "...), value...), "\r\n"...)
}

// hasBody reports whether the status allows a body.
func (x *served) hasBody() bool {
	return x.status != http.StatusNoContent && x.status != http.StatusNotModified
}

// commit completes the head. first is the beginning of the body, or all of it if whole is set.
func (x *served) commit(first []byte, whole bool) {
	c, isHead := x.c, x.r.Method == http.MethodHead
	x.committed = true
	x.closeLast = x.closeLast || x.r.Close || c.server.closing.Load() || c.broken
	x.closeLast = x.closeLast || !x.skipBody()
	if whole && x.length < 0 && (!isHead || len(first) > 0) {
		x.length = int64(len(first))
	}
	b := c.head
	if !x.hasDate {
		b = appendField(b, "Date", c.server.date(time.Now()))
	}
	if x.hasBody() {
		if !x.hasType && len(first) > 0 {
			b = appendField(b, "Content-Type", http.DetectContentType(first))
		}
		switch {
		case x.length >= 0:
			b = append(strconv.AppendInt(append(b, "Content-Length: "...), x.length, 10), "\r\n"...)
		case !isHead:
			x.chunked = true
			b = append(b, "Transfer-Encoding: chunked\r\n"...)
		}
	}
	if x.closeLast {
		b = append(b, "Connection: close\r\n"...)
	}
	c.head = append(b, "\r\n"...)
}

// Write is part of http.ResponseWriter.
func (x *served) Write(p []byte) (int, error) {
	if x.status == 0 {
		x.WriteHeader(http.StatusOK)
	}
	switch {
	case x.over.Load():
		return 0, http.ErrHandlerTimeout
	case len(p) == 0:
		return 0, nil
	case !x.hasBody():
		return 0, http.ErrBodyNotAllowed
	case x.length >= 0 && x.written+int64(len(p)) > x.length:
		return 0, http.ErrContentLength
	}
	x.written += int64(len(p))
	if c := x.c; len(c.held)+len(p) <= heldBytes {
		c.held = append(c.held, p...)
		return len(p), x.err
	}
	x.send(p)
	if x.err != nil {
		return 0, x.err
	}
	return len(p), nil
}

// WriteString is part of io.StringWriter.
func (x *served) WriteString(s string) (int, error) { return x.Write([]byte(s)) }

// FlushError sends the head and the held part of the body.
func (x *served) FlushError() error {
	if x.over.Load() {
		return http.ErrHandlerTimeout
	}
	if x.status == 0 {
		x.WriteHeader(http.StatusOK)
	}
	x.send(nil)
	return x.err
}

// Flush is part of http.Flusher.
func (x *served) Flush() { _ = x.FlushError() } // the next write returns the error again

// send sends the head, the held part of the body and then more of it, in one system call if the kernel has room.
func (x *served) send(more []byte) {
	c := x.c
	if !x.committed {
		first := c.held
		if len(first) == 0 {
			first = more
		}
		x.commit(first, false)
	}
	if x.r.Method == http.MethodHead {
		c.held, more = c.held[:0], nil
	}
	n := len(c.held) + len(more)
	var end []byte
	if x.chunked && n > 0 {
		c.head = append(strconv.AppendInt(c.head, int64(n), 16), "\r\n"...)
		end = crlf
	}
	if n <= heldBytes {
		x.write(append(append(append(c.head, c.held...), more...), end...))
	} else if x.err == nil {
		x.dropOldDeadline()
		c.pieces = append(c.pieces[:0], c.head, c.held, more, end)
		_, x.err = c.transmitAll(c.pieces)
	}
	c.head, c.held = c.head[:0], c.held[:0]
}

var crlf = []byte("\r\n")

// write sends bytes that end with the scratch of the head, which may have grown.
func (x *served) write(p []byte) {
	if x.err == nil && len(p) > 0 {
		x.dropOldDeadline()
		_, x.err = x.c.transmit(p)
	}
	x.c.head = p[:0]
}

// end sends the rest of the answer, and reports whether the connection may carry another request.
func (x *served) end() bool {
	if x.status == 0 {
		x.WriteHeader(http.StatusOK)
	}
	x.over.Store(true)
	c := x.c
	if !x.committed {
		x.commit(c.held, true)
	}
	if x.r.Method == http.MethodHead {
		c.held = c.held[:0]
	}
	b := c.head
	if x.chunked {
		if len(c.held) > 0 {
			b = append(append(append(strconv.AppendInt(b, int64(len(c.held)), 16), "\r\n"...), c.held...), "\r\n"...)
		}
		b = append(b, "0\r\n\r\n"...)
	} else {
		b = append(b, c.held...)
	}
	x.write(b)
	c.held = c.held[:0]
	short := x.length >= 0 && x.written != x.length && x.hasBody() && x.r.Method != http.MethodHead
	switch {
	case x.err != nil || short:
		return false
	case !x.closeLast && x.skipBody():
		if !x.arrived {
			_ = c.socket.SetReadDeadline(time.Time{}) // an error shows at the next read too
		}
		return true
	}
	if x.unread > 0 && closeWrite(c.socket) == nil {
		time.Sleep(resetDelay)
	}
	return false
}

// handle calls the handler and the function of ContinueAfterHandler, and reports whether both returned without a panic.
func (x *served) handle() (returned bool) {
	defer func() {
		p := recover()
		if returned = p == nil; !returned && p != http.ErrAbortHandler { //nolint:errorlint // net/http compares too
			x.c.server.OnPanic(p)
		}
	}()
	defer func() { // also after a panic, because the rest frees what the handler holds
		if x.rest != nil {
			x.rest()
		}
	}()
	x.c.server.Handler.ServeHTTP(x, &x.r)
	return true
}

// ContinueAfterHandler sets a function that does the rest of the handler's work. The server calls it once, after the
// handler has returned or panicked. The function may use the request and its writer. A long wait in it needs a small
// stack only.
func (x *served) ContinueAfterHandler(f func()) { x.rest = f }

// SetReadDeadline is part of http.ResponseController.
func (x *served) SetReadDeadline(t time.Time) error {
	if x.arrived {
		return nil
	}
	return x.c.socket.SetReadDeadline(t)
}

// SetWriteDeadline is part of http.ResponseController. Setting a deadline costs a timer, so one that is at most a
// sixteenth of its time earlier stays, also that of an earlier request.
func (x *served) SetWriteDeadline(t time.Time) error {
	x.timed = true
	if early := t.Sub(x.c.deadline); !t.IsZero() && early >= 0 && early <= time.Until(t)/16 {
		return nil
	}
	x.c.deadline = t
	return x.c.socket.SetWriteDeadline(t)
}

// dropOldDeadline removes the write deadline of an earlier request.
func (x *served) dropOldDeadline() {
	if !x.timed && !x.c.deadline.IsZero() {
		_ = x.SetWriteDeadline(time.Time{}) // an error shows at the write too
	}
}
