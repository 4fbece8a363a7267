package proxy

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"tierway/http1"
)

// unpackBody unpacks an answer that came compressed although identity was asked
// for: nothing downstream reads anything else. Of an answer that is not 2xx the
// status decides, so a body that cannot be read there is an empty one.
func unpackBody(resp *http1.Response) error {
	switch encoding := strings.ToLower(resp.Header.Get("Content-Encoding")); encoding {
	case "", "identity":
	case "gzip":
		resp.Body, resp.ContentLength = &gzipBody{packed: countedBody{ReadCloser: resp.Body}}, -1
	default:
		resp.Body.Close()
		if resp.Status/100 == 2 {
			return &http1.SendError{Phase: http1.PhaseBody,
				Err: errors.New("the worker's Content-Encoding is neither identity nor gzip")}
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
