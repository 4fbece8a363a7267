package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"tierway/http1"
	"tierway/openai"
)

// uploadHead is how much of a body is read before it streams: a file's first bytes tell
// it from JSON.
const uploadHead = 512

var (
	errUploadOver    = errors.New("the upload is over")
	errUploadTooLong = errors.New("it is longer than max_upload_bytes")
	errClientBody    = errors.New("the client's body failed")
)

// upload is a request body that streams to one worker. One piece of it is in memory at
// a time, and it is sent at most once. The worker's Sender reads it on whatever
// goroutine; the exchange ends it.
type upload struct {
	x      *exchange
	a      *attempt  // that sends it
	from   io.Reader // what was read before, then the client's body
	length int64     // -1: not known
	closes bool      // the answer says that the connection closes

	reading sync.Mutex // held by a read; guards the next three
	n       int64
	waited  time.Duration // for the client, whose pace counts
	err     error         // why the client's side failed

	mu    sync.Mutex // guards the rest
	begun bool       // a worker may have part of it
	whole bool       // the client has sent all of it
	over  bool       // nothing is read any more
}

// openUpload returns the request's body as an upload if its pool takes uploads and the
// body is, or may be, longer than max_body_bytes; else nil. What may be a JSON object is
// buffered, because its fields must be read, and so is what is compressed.
func openUpload(x *exchange) (*upload, error) {
	most, length := x.resolution.pool.MaxUploadBytes, x.in.r.ContentLength
	if most == 0 || x.in.r.Body == nil || x.in.r.Body == http.NoBody ||
		length >= 0 && length <= int64(x.snap.File.MaxBodyBytes) || len(x.in.r.Header["Content-Encoding"]) > 0 {
		return nil, nil
	}
	u := &upload{x: x, length: length, from: x.in.r.Body}
	if length > most {
		x.answer.w.Header().Set("Connection", "close")
		return nil, u.failure(errUploadTooLong)
	}
	head, err := u.head()
	if err != nil {
		return nil, u.failure(err)
	}
	u.from = io.MultiReader(bytes.NewReader(head), x.in.r.Body)
	if x.in.mayBeObject(head) {
		x.in.r.Body = readCloser{u.from, x.in.r.Body}
		return nil, nil
	}
	x.in.readAt = time.Now()
	if h := x.answer.w.Header(); x.in.r.ProtoMajor < 2 && h.Get("Connection") == "" {
		h.Set("Connection", "close") // unless the body is read to its end
		u.closes = true
	}
	return u, nil
}

// head reads the beginning of the body, until it shows whether it may be an object.
func (u *upload) head() ([]byte, error) {
	head := make([]byte, 0, uploadHead)
	for len(head) < len(byteOrderMark) || len(head) < cap(head) && len(trimBlank(head)) == 0 {
		n, err := u.read(head[len(head):cap(head)])
		head = head[:len(head)+n]
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	u.n = 0 // it is read once more
	return head, nil
}

// mayBeObject reports whether a body that begins so may be a JSON object in an encoding
// that engines read.
func (in *inbound) mayBeObject(head []byte) bool {
	return len(trimBlank(head)) == 0 || isObject(head) || in.otherwiseEncoded(head)
}

// Read reads a piece for the worker. timeouts.idle counts until it is called again: for
// as long as the worker takes the piece.
func (u *upload) Read(p []byte) (int, error) {
	u.a.watch.rest()
	n, err := u.read(p)
	within := u.x.snap.File.Timeouts.Idle
	u.mu.Lock()
	if u.begun = true; u.whole {
		within = u.a.firstByte
	}
	u.mu.Unlock()
	u.a.watch.await(within, errIdleTimeout)
	return n, err
}

// read reads from the client, at no less than the pace of every body.
func (u *upload) read(p []byte) (int, error) {
	u.reading.Lock()
	defer u.reading.Unlock()
	began := time.Now()
	allowed := bodyGrace + time.Duration(u.n)*time.Second/bodyRate - u.waited
	limit := began.Add(min(allowed, u.x.snap.File.Timeouts.ClientStall))
	if err := u.arm(limit); err != nil {
		return 0, err
	}
	n, err := u.from.Read(p)
	err = stalled(err, limit)
	u.n += int64(n)
	u.waited += time.Since(began)
	if u.n > u.x.resolution.pool.MaxUploadBytes {
		n, err = 0, errUploadTooLong
	}
	if over := u.disarm(err == io.EOF || u.n == u.length); err != nil && err != io.EOF && !over {
		u.err = err
	}
	return n, err
}

// arm sets when the client's next bytes are due.
func (u *upload) arm(limit time.Time) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.over:
		return errUploadOver
	case u.whole:
		return nil
	}
	return u.x.answer.control.SetReadDeadline(limit)
}

// disarm removes the deadline again: over HTTP/2 it would end the stream while nothing
// is read. It reports whether the upload was ended meanwhile.
func (u *upload) disarm(whole bool) (over bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.whole = u.whole || whole; !u.over {
		u.x.answer.control.SetReadDeadline(time.Time{}) //nolint:errcheck // a dead connection shows at the next read
	}
	return u.over
}

// stop ends the upload, and a read that waits for the client.
func (u *upload) stop() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.over = true; !u.whole {
		u.x.answer.control.SetReadDeadline(time.Unix(1, 0)) //nolint:errcheck // a dead connection has no rest
	}
}

// end ends the upload and returns when nothing reads from the client any more.
func (u *upload) end() {
	u.stop()
	u.reading.Lock()
	defer u.reading.Unlock()
	if u.closes && u.isWhole() {
		u.x.answer.w.Header().Del("Connection")
	}
}

func (u *upload) isWhole() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.whole
}

// untouched reports whether no worker can have any of it.
func (u *upload) untouched() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return !u.begun
}

// sendUpload sends a request whose body streams. Afterwards the client's body is not
// read any more, unless nothing of it was: then another worker may have it.
func sendUpload(ctx context.Context, a *attempt, req *http1.Request) (*http1.Response, error) {
	u := a.x.parsed.upload
	u.a, req.Upload, req.UploadLength = a, u, u.length
	release := context.AfterFunc(ctx, func() {
		if !errors.Is(context.Cause(ctx), context.Canceled) { // which the client's own side ends by
			u.stop()
		}
	})
	resp, err := a.m.Worker.Send(ctx, req)
	release()
	if err == nil || !u.untouched() {
		u.end()
	}
	return resp, err
}

// left reports whether the client ended its own body early.
func (u *upload) left() bool {
	u.reading.Lock()
	defer u.reading.Unlock()
	return brokenOff(u.err)
}

// brokenOff reports whether an error of a body is the end of its connection or stream,
// and not a body that is too long, too slow or malformed.
func brokenOff(err error) bool {
	timeout, isNet := errors.AsType[net.Error](err)
	return errors.Is(err, io.ErrUnexpectedEOF) || isNet && !timeout.Timeout()
}

// uploadFailure is the failure of an attempt whose body failed on the client's side; nil
// if it did not.
func (a *attempt) uploadFailure() *failure {
	u := a.x.parsed.upload
	if u == nil {
		return nil
	}
	u.reading.Lock()
	defer u.reading.Unlock()
	if u.err == nil {
		return nil
	}
	return &failure{left: true, blame: excluded("%w: %w", errClientBody, u.err), err: translate(u.failure(u.err))}
}

// failure is the answer to a body that failed on the client's side.
func (u *upload) failure(err error) error {
	if errors.Is(err, errUploadTooLong) {
		return &openai.Error{Code: openai.CodeRequestTooLarge, Cause: err,
			Message: fmt.Sprintf("The request body is larger than %d bytes: send less, or raise max_upload_bytes of the pool.",
				u.x.resolution.pool.MaxUploadBytes)}
	}
	return brokenBody(u.x, err)
}
