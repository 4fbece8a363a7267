package proxy

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"tierway/http1"
	"tierway/openai"
	"tierway/server/control"
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
func readBody(x *exchange) ([]byte, error) {
	if x.in.r.Body == nil || x.in.r.Body == http.NoBody {
		x.in.readAt = time.Now()
		return nil, nil
	}
	most := int64(x.snap.File.MaxBodyBytes)
	if x.in.r.ContentLength > most {
		x.answer.w.Header().Set("Connection", "close") // the rest is not worth reading
	}
	encoding := strings.ToLower(strings.TrimSpace(strings.Join(x.in.r.Header.Values("Content-Encoding"), ", ")))
	src := &paced{r: x.in.r.Body, control: x.answer.control, start: x.in.start, stall: x.snap.File.Timeouts.ClientStall}
	x.in.memory = x.s.bodyMemory(x.caller.Tenant)
	body, err := openai.Decode(encoding, src, x.in.r.ContentLength, most, &x.in.memory)
	if err == nil {
		if !src.limit.IsZero() {
			src.control.SetReadDeadline(time.Time{}) //nolint:errcheck // a dead connection shows at the next write
		}
		x.in.readAt = time.Now()
		return body, nil
	}
	if errors.Is(err, control.ErrBodyMemory) {
		return nil, x.s.noBodyMemory()
	}
	var refused *openai.RequestError
	if errors.As(err, &refused) {
		if refused.Reason == openai.CodeRequestTooLarge {
			x.answer.w.Header().Set("Connection", "close")
		}
		return nil, err
	}
	return nil, brokenBody(x, err)
}

// brokenBody is the answer to a body that could not be read to its end.
func brokenBody(x *exchange, err error) error {
	x.answer.w.Header().Set("Connection", "close")
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		x.in.tooSlow = true
		return &openai.Error{Code: openai.CodeRequestTimeout, Message: "The request's body arrived too slowly: send at least 1 KiB per second.", Cause: err}
	}
	return &openai.Error{Code: openai.CodeInvalidJSON, Message: "The request's body broke off.", Cause: err}
}

// UnreadGrace is how long the rest of a body that nobody wants may take:
// net/http reads it after the answer, to keep the connection.
const UnreadGrace = time.Second

// closeBody bounds what an unread body may still cost.
func closeBody(x *exchange) {
	if x.parsed.upload != nil {
		x.parsed.upload.end()
		return
	}
	if !x.in.readAt.IsZero() || x.in.r.Body == nil || x.in.r.Body == http.NoBody {
		return
	}
	limit := time.Now()
	if x.answer.w.Header().Get("Connection") != "close" {
		limit = limit.Add(UnreadGrace)
	}
	x.answer.control.SetReadDeadline(limit) //nolint:errcheck // a dead connection has no rest
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
	if err == nil || err == io.EOF || time.Now().Before(limit) {
		return err
	}
	return os.ErrDeadlineExceeded
}

// plainBody unpacks an answer that came compressed although identity was asked
// for: nothing downstream reads anything else. Of an answer that is not 2xx the
// status decides, so a body that cannot be read there is an empty one.
func plainBody(resp *http1.Response) error {
	switch encoding := strings.ToLower(resp.Header.Get("Content-Encoding")); encoding {
	case "", "identity":
	case "gzip":
		resp.Body, resp.ContentLength = &gzipBody{packed: countedBody{ReadCloser: resp.Body}}, -1
	default:
		resp.Body.Close()
		if resp.Status/100 == 2 {
			return &http1.SendError{Phase: http1.PhaseBody, Err: errors.New("the worker's Content-Encoding is neither identity nor gzip")}
		}
		resp.Body, resp.ContentLength = http.NoBody, 0
	}
	return nil
}

const (
	// answerRatio bounds how many bytes a byte of a compressed answer may become.
	// JSON of log probabilities, the most regular of answers, has about 20; deflate
	// reaches 1,032.
	answerRatio = 100
	// answerRatioFrom is the unpacked length from which the ratio counts.
	answerRatioFrom = 1 << 20
)

// gzipBody unpacks a worker's answer from its first Read on.
type gzipBody struct {
	packed   countedBody
	unpacked int64
	z        *gzip.Reader
}

// Read implements io.Reader.
func (b *gzipBody) Read(p []byte) (n int, err error) {
	if b.z == nil {
		if b.z, err = gzip.NewReader(&b.packed); err != nil {
			return 0, err
		}
	}
	n, err = b.z.Read(p)
	if b.unpacked += int64(n); b.unpacked > max(answerRatioFrom, answerRatio*b.packed.n) {
		return 0, fmt.Errorf("the worker's answer unpacks to more than %d times its bytes", answerRatio)
	}
	return n, err
}

// Close implements io.Closer.
func (b *gzipBody) Close() error { return b.packed.Close() }

// countedBody counts the bytes that were read of a body.
type countedBody struct {
	io.ReadCloser
	n int64
}

// Read implements io.Reader.
func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.n += int64(n)
	return n, err
}
