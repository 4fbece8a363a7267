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
	// bodyGrace is how long a body may take before its rate counts.
	bodyGrace = 5 * time.Second
	// bodyRate is the slowest rate in bytes a second at which a body is waited
	// for: a phone on a bad link is faster, a slowloris is not.
	bodyRate = 1 << 10
)

// readBody reads and decodes the request's body within max_body_bytes and
// max_buffered_bytes.
func (it *Intake) readBody(in *Inbound, c *Caller) ([]byte, error) {
	if !in.hasBody() {
		in.ReadAt = time.Now()
		return nil, nil
	}
	most := int64(in.Snap.File.MaxBodyBytes)
	if in.HTTP.ContentLength > most {
		in.closeConnection() // the rest is not worth reading
	}
	encoding := strings.ToLower(strings.TrimSpace(strings.Join(in.HTTP.Header.Values("Content-Encoding"), ", ")))
	in.body = paced{r: in.HTTP.Body, control: in.conn, start: in.Start, stall: in.Snap.File.Timeouts.ClientStall}
	in.Memory = it.Memory(c.Tenant)
	body, err := openai.Decode(encoding, &in.body, in.HTTP.ContentLength, most, &in.Memory)
	if err == nil {
		if !in.body.limit.IsZero() {
			in.conn.SetReadDeadline(time.Time{}) //nolint:errcheck // a dead connection shows at the next write
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

// brokenBody is the answer to a body that could not be read to its end.
func (in *Inbound) brokenBody(err error) error {
	in.closeConnection()
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		in.TooSlow = true
		return &openai.Error{Code: openai.CodeRequestTimeout, Message: "The request's body arrived too slowly: send at least 1 KiB per second.", Cause: err}
	}
	return &openai.Error{Code: openai.CodeInvalidJSON, Message: "The request's body broke off.", Cause: err}
}

// UnreadGrace is how long the rest of an unwanted body may take:
// net/http reads it after the answer, to keep the connection.
const UnreadGrace = time.Second

// CloseBody gives back the memory of the request's body, and bounds what an unread one may
// still cost.
func (p *Parsed) CloseBody(in *Inbound) {
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
	in.conn.SetReadDeadline(limit) //nolint:errcheck // a dead connection has no rest
}

// DropBody forgets the body of a request that is not sent again, so that a long answer
// does not hold it.
func (p *Parsed) DropBody(in *Inbound) {
	p.Req.Body = nil
	in.Memory.Release()
}

// paced reads a body and gives up when it comes slower than bodyRate, or when nothing
// comes for the stall time: what was sent fast before is no credit for silence.
type paced struct {
	r       io.Reader
	control *http.ResponseController
	start   time.Time
	stall   time.Duration
	n       int64
	limit   time.Time
}

func (p *paced) Read(b []byte) (int, error) {
	limit := p.start.Add(bodyGrace + time.Duration(p.n)*time.Second/bodyRate)
	if silence := time.Now().Add(p.stall); silence.Before(limit) {
		limit = silence
	}
	if limit.Sub(p.limit) > min(time.Second, p.stall/4) { // less is not worth a timer
		p.limit = limit
		if err := p.control.SetReadDeadline(limit); err != nil {
			return 0, err
		}
	}
	n, err := p.r.Read(b)
	p.n += int64(n)
	return n, stalled(err, p.limit)
}

// stalled returns the error of a read as a timeout if its deadline has passed: net/http
// hides the deadline of a read within a trailer.
func stalled(err error, limit time.Time) error {
	if err == nil || errors.Is(err, io.EOF) || time.Now().Before(limit) {
		return err
	}
	return os.ErrDeadlineExceeded
}

// noBodyMemory is the answer to a request whose body finds no memory.
func (it *Intake) noBodyMemory() error {
	it.metrics.BodiesRefused.Inc()
	// Clients that were refused together must not return together.
	wait := time.Second + time.Duration(it.rand()%uint64(2*time.Second))
	return &openai.Error{Code: openai.CodeOverloaded, RetryAfter: wait, Cause: ErrBodyMemory,
		Message: "The request bodies that the gateway holds leave no memory for this one (max_buffered_bytes). Send fewer or shorter requests at a time, and try again in " + openai.ShortDuration(wait) + "."}
}
