package intake

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"tierway/openai"
)

// uploadHead is the number of bytes of a body that are read before it streams: the first bytes
// distinguish a file from JSON.
const uploadHead = 512

var (
	errUploadEnded   = errors.New("the upload is over")
	errUploadTooLong = errors.New("the upload exceeds max_upload_bytes")
)

// Upload is a request body that streams to one worker. One piece of it is in memory at a time, and it is
// sent at most once. Read may run on another goroutine than Stop and End, which end the upload.
type Upload struct {
	Length    int64 // in bytes; -1: unknown
	in        *Inbound
	maxLength int64     // maximum length in bytes
	source    io.Reader // the head, then the rest of the client's body
	closes    bool      // the upload has set `Connection: close` in the answer

	reading sync.Mutex // locked during a read; guards the next three
	n       int64
	waited  time.Duration // time waited for the client
	err     error         // failure of the client's side

	mu    sync.Mutex // guards the rest
	begun bool       // a worker may have received a part
	whole bool       // the client has sent the whole body
	ended bool       // no further reads
}

// openUpload returns the request's body as an upload of at most maxLength bytes. It returns nil if the pool
// takes no uploads, if the body is at most max_body_bytes long, if it is compressed, or if it may be a
// JSON object with fields to check. Such bodies are buffered.
func openUpload(in *Inbound, maxLength int64) (*Upload, error) {
	length := in.HTTP.ContentLength
	if maxLength == 0 || !in.hasBody() || length >= 0 && length <= int64(in.Snap.File.MaxBodyBytes) ||
		len(in.HTTP.Header["Content-Encoding"]) > 0 {
		return nil, nil
	}
	u := &Upload{in: in, maxLength: maxLength, Length: length, source: in.HTTP.Body}
	if length > maxLength {
		in.closeConnection()
		return nil, u.failure(errUploadTooLong)
	}
	head, err := u.head()
	if err != nil {
		return nil, u.failure(err)
	}
	u.source = io.MultiReader(bytes.NewReader(head), in.HTTP.Body)
	if in.mayBeObject(head) {
		in.HTTP.Body = struct {
			io.Reader
			io.Closer
		}{u.source, in.HTTP.Body}
		return nil, nil
	}
	in.ReadAt = time.Now()
	if in.HTTP.ProtoMajor < 2 && in.header.Get("Connection") == "" {
		in.closeConnection() // unless the body is read to its end
		u.closes = true
	}
	return u, nil
}

// head reads the beginning of the body, until it shows whether it may be an object.
func (u *Upload) head() ([]byte, error) {
	head := make([]byte, 0, uploadHead)
	for len(head) < len(byteOrderMark) || len(head) < cap(head) && len(trimBlank(head)) == 0 {
		n, err := u.read(head[len(head):cap(head)])
		head = head[:len(head)+n]
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	u.n = 0 // the head is read again
	return head, nil
}

// mayBeObject reports whether a body with this beginning may be a JSON object, in any encoding that
// engines read.
func (in *Inbound) mayBeObject(head []byte) bool {
	return len(trimBlank(head)) == 0 || isObject(head) || in.otherwiseEncoded(head)
}

// Read reads the next bytes for the worker.
func (u *Upload) Read(p []byte) (int, error) {
	n, err := u.read(p)
	u.mu.Lock()
	u.begun = true
	u.mu.Unlock()
	return n, err
}

// read reads from the client, with the minimum rate of all bodies.
func (u *Upload) read(p []byte) (int, error) {
	u.reading.Lock()
	defer u.reading.Unlock()
	began := time.Now()
	allowed := bodyTime(u.n) - u.waited
	limit := began.Add(min(allowed, u.in.Snap.File.Timeouts.ClientStall))
	if err := u.setDeadline(limit); err != nil {
		return 0, err
	}
	n, err := u.source.Read(p)
	err = stalled(err, limit)
	u.n += int64(n)
	u.waited += time.Since(began)
	if u.n > u.maxLength {
		n, err = 0, errUploadTooLong
	}
	if over := u.clearDeadline(errors.Is(err, io.EOF) || u.n == u.Length); err != nil && !errors.Is(err, io.EOF) && !over {
		u.err = err
	}
	return n, err
}

func (u *Upload) setDeadline(limit time.Time) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.ended:
		return errUploadEnded
	case u.whole:
		return nil
	}
	return u.in.conn.SetReadDeadline(limit)
}

// clearDeadline removes the deadline: over HTTP/2 it would end the stream even between reads. It reports
// whether the upload was ended meanwhile.
func (u *Upload) clearDeadline(whole bool) (over bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.whole = u.whole || whole; !u.ended {
		u.in.conn.SetReadDeadline(time.Time{}) // a dead connection shows at the next read
	}
	return u.ended
}

// Stop ends the upload, and a read that waits for the client.
func (u *Upload) Stop() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ended = true; !u.whole {
		u.in.conn.SetReadDeadline(time.Unix(1, 0)) // a dead connection has no rest
	}
}

// End ends the upload, and returns when no read from the client is in progress.
func (u *Upload) End() {
	u.Stop()
	u.reading.Lock()
	defer u.reading.Unlock()
	if u.closes && u.IsWhole() {
		u.in.header.Del("Connection")
	}
}

// IsWhole reports whether the client has sent the whole body.
func (u *Upload) IsWhole() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.whole
}

// Untouched reports whether no worker can have received any part of the body.
func (u *Upload) Untouched() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return !u.begun
}

// ClientLeft reports whether the client ended its own body early.
func (u *Upload) ClientLeft() bool {
	u.reading.Lock()
	defer u.reading.Unlock()
	return brokenOff(u.err)
}

// brokenOff reports whether err means that the connection or stream of a body ended early. It returns
// false for a body that is too long, too slow or malformed.
func brokenOff(err error) bool {
	timeout, isNet := errors.AsType[net.Error](err)
	return errors.Is(err, io.ErrUnexpectedEOF) || isNet && !timeout.Timeout()
}

// ClientFailure returns the failure of the client's side and its answer, or nil if there is none.
func (u *Upload) ClientFailure() (cause, answer error) {
	u.reading.Lock()
	defer u.reading.Unlock()
	if u.err == nil {
		return nil, nil
	}
	return u.err, u.failure(u.err)
}

// failure returns the answer to a body that failed on the client's side.
func (u *Upload) failure(err error) error {
	if errors.Is(err, errUploadTooLong) {
		return &openai.Error{Code: openai.CodeRequestTooLarge, Cause: err,
			Message: fmt.Sprintf("The request body is larger than %d bytes: send less, or raise max_upload_bytes of the pool.",
				u.maxLength)}
	}
	return u.in.brokenBody(err)
}
