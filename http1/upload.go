package http1

import (
	"errors"
	"io"
	"os"
	"strconv"
	"time"
)

const (
	// uploadPiece is the size in bytes of the pieces in which a streamed body is sent.
	uploadPiece = 32 << 10
	// uploadHead is the space in bytes for a chunk's size line: eight hexadecimal digits and CRLF.
	uploadHead = 10
	// uploadPoll is the interval at which a blocked write checks whether the worker has already
	// answered: a worker may reject a body without reading it and without closing.
	uploadPoll = time.Second
)

// errEarlyAnswer means that the worker answered before it had read the whole body.
var errEarlyAnswer = errors.New("the worker answered before it had read the whole body")

// uploadError is a failure of the request's own body, not of the connection.
type uploadError struct{ error }

func (e uploadError) Unwrap() error { return e.error }

// writeUpload writes a streamed body, in chunks if length is negative. It buffers one piece at a time,
// so the body is read at the worker's pace. An uploadError means that the body broke off.
func (c *conn) writeUpload(body io.Reader, length int64) error {
	chunked := length < 0
	buf := make([]byte, uploadHead+uploadPiece+len("\r\n"))
	for left := length; left != 0; {
		piece := buf[uploadHead : uploadHead+uploadPiece]
		if !chunked {
			piece = piece[:min(int64(len(piece)), left)]
		}
		n, err := body.Read(piece)
		if n > 0 {
			piece := piece[:n]
			if chunked {
				piece = frameChunk(buf, n)
			}
			if err := c.writeAll(piece); err != nil {
				return err
			}
			left -= int64(n) // a negative length stays negative
		}
		switch {
		case err == io.EOF && chunked:
			return c.writeAll([]byte("0\r\n\r\n"))
		case err == io.EOF && left > 0:
			return uploadError{io.ErrUnexpectedEOF}
		case err != nil && err != io.EOF:
			return uploadError{err}
		}
	}
	return nil
}

// frameChunk returns a chunk with n bytes of content. buf has the content after the space for the
// size line.
func frameChunk(buf []byte, n int) []byte {
	var digits [uploadHead]byte
	size := append(strconv.AppendInt(digits[:0], int64(n), 16), "\r\n"...)
	from := uploadHead - len(size)
	copy(buf[from:], size)
	return append(buf[from:uploadHead+n], "\r\n"...)
}

// writeAll writes all of p, or returns errEarlyAnswer.
func (c *conn) writeAll(p []byte) error {
	for len(p) > 0 {
		if err := c.socket.SetWriteDeadline(time.Now().Add(uploadPoll)); err != nil {
			return err
		}
		n, err := c.transmit(p)
		p = p[n:]
		switch {
		case err == nil:
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		case n == 0 && c.answered():
			return errEarlyAnswer
		}
	}
	return c.socket.SetWriteDeadline(time.Time{})
}

// answered reports whether the worker has sent input, which stays in the buffer, or has closed the
// connection.
func (c *conn) answered() bool {
	if err := c.socket.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		return true
	}
	err := c.fill(bufferSize)
	if clear := c.socket.SetReadDeadline(time.Time{}); clear != nil {
		return true
	}
	return !errors.Is(err, os.ErrDeadlineExceeded)
}
