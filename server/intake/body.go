package intake

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"tierway/openai"
)

const (
	// bodyGrace is how long a body may take before its rate is checked.
	bodyGrace = 5 * time.Second
	// bodyRate is the slowest accepted rate of a body in bytes per second: a phone on a bad link
	// is faster, a slowloris attack is not.
	bodyRate = 1 << 10
)

// bodyTime returns the time in which the first n bytes of a body, and then the next ones, must have arrived.
func bodyTime(n int64) time.Duration {
	n = min(n, 1<<42) // 4 TiB have 136 years, and 8 TiB would overflow a Duration
	return bodyGrace + time.Duration(n/bodyRate)*time.Second + time.Duration(n%bodyRate)*time.Second/bodyRate
}

// readBody reads and decodes the request's body, of at most limit bytes and within max_buffered_bytes.
func (it *Intake) readBody(in *Inbound, c *Caller, limit int64) ([]byte, error) {
	if !in.hasBody() {
		in.ReadAt = time.Now()
		return nil, nil
	}
	if in.HTTP.ContentLength > limit {
		in.closeConnection() // the rest is not read
	}
	encoding := strings.ToLower(strings.TrimSpace(strings.Join(in.HTTP.Header.Values("Content-Encoding"), ", ")))
	in.body = pacedReader{r: in.HTTP.Body, control: in.conn, start: in.Start, stall: in.Snap.File.Timeouts.ClientStall}
	in.Memory = it.Memory(c.Tenant)
	body, err := in.decodeBody(encoding, limit)
	if err == nil {
		if !in.body.limit.IsZero() {
			in.conn.SetReadDeadline(time.Time{}) // a dead connection shows at the next write
		}
		in.ReadAt = time.Now()
		return body, nil
	}
	var refused *openai.RequestError
	switch {
	case errors.Is(err, ErrBodyMemory):
		return nil, it.noBodyMemory()
	case errors.As(err, &refused):
		if refused.Reason == openai.CodeRequestTooLarge {
			in.closeConnection()
		}
		return nil, err
	}
	return nil, in.brokenBody(err)
}

// decodeBody reads and decodes the body into memory of in.Memory, if possible into a pooled buffer.
func (in *Inbound) decodeBody(encoding string, limit int64) (body []byte, err error) {
	var first []byte
	length := in.HTTP.ContentLength
	if encoding == "" && length <= limit {
		first = in.Memory.takeBuffer(length)
	}
	return openai.DecodeInto(first, encoding, &in.body, length, limit, &in.Memory)
}

// brokenBody returns the answer to a body that ended early or arrived too slowly.
func (in *Inbound) brokenBody(err error) error {
	in.closeConnection()
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		in.TooSlow = true
		return &openai.Error{Code: openai.CodeRequestTimeout,
			Message: "The request body arrived too slowly: send at least 1 KiB per second, without long pauses.", Cause: err}
	}
	return &openai.Error{Code: openai.CodeInvalidJSON, Message: "The request body ended early. Send it again.", Cause: err}
}

// UnreadGrace is the time limit for the rest of a body that is not needed. net/http reads it after the
// answer, to reuse the connection.
const UnreadGrace = time.Second

// CloseBody releases the memory of the request's body, and limits the time for reading an unread body. The
// caller must not use the body afterwards, unless KeepBody was called.
func (p *Parsed) CloseBody(in *Inbound) {
	if p.Req != nil {
		p.Req.Body = nil
	}
	in.Memory.Release()
	if p.Upload != nil {
		p.Upload.End()
		return
	}
	if !in.ReadAt.IsZero() || !in.hasBody() {
		return
	}
	limit := time.Now()
	if in.header.Get("Connection") != "close" {
		limit = limit.Add(UnreadGrace)
	}
	in.conn.SetReadDeadline(limit) // on a dead connection there is nothing to read
}

// DropBody releases the body of a request that is not sent again, so that it is not kept during a long
// answer. The caller must not use the body afterwards, unless KeepBody was called.
func (p *Parsed) DropBody(in *Inbound) {
	p.Req.Body = nil
	in.Memory.Release()
}

// pacedReader reads a body. It fails if the body arrives more slowly than bodyRate, or if nothing arrives for
// the stall time, even if earlier parts arrived faster.
type pacedReader struct {
	r       io.Reader
	control *http.ResponseController
	start   time.Time
	stall   time.Duration
	n       int64
	limit   time.Time
}

func (p *pacedReader) Read(b []byte) (int, error) {
	limit := p.start.Add(bodyTime(p.n))
	if silence := time.Now().Add(p.stall); silence.Before(limit) {
		limit = silence
	}
	if limit.Sub(p.limit) > min(time.Second, p.stall/4) { // a smaller change is not worth a timer
		p.limit = limit
		if err := p.control.SetReadDeadline(limit); err != nil {
			return 0, err
		}
	}
	n, err := p.r.Read(b)
	p.n += int64(n)
	return n, stalled(err, p.limit)
}

// stalled returns err, the error of a read, as a timeout if the deadline limit has passed. net/http
// hides such timeouts in trailers.
func stalled(err error, limit time.Time) error {
	if err == nil || errors.Is(err, io.EOF) || time.Now().Before(limit) {
		return err
	}
	return os.ErrDeadlineExceeded
}

// noBodyMemory returns the answer to a request if no memory is left for its body.
func (it *Intake) noBodyMemory() error {
	it.metrics.BodiesRefused.Inc()
	// Clients that are rejected together must not retry together.
	wait := time.Second + time.Duration(it.rand()%uint64(2*time.Second))
	return &openai.Error{
		Code:       openai.CodeOverloaded,
		RetryAfter: wait,
		Cause:      ErrBodyMemory,
		Message: "The gateway has no memory left for this request body (max_buffered_bytes). Send fewer or shorter " +
			"requests at once, and try again in " + openai.ShortDuration(wait) + ".",
	}
}
