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

// unpackBody unpacks an answer that is compressed although the request asked for identity, because the
// relay parses plain text only. If the encoding is unknown, an error answer gets an empty body, because
// its status is sufficient.
func unpackBody(resp *http1.Response) error {
	switch encoding := strings.ToLower(resp.Header.Get("Content-Encoding")); encoding {
	case "", "identity":
	case "gzip", "x-gzip":
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
	// answerRatio is the largest ratio of unpacked to compressed bytes. Log probabilities in JSON, the
	// most regular answers, reach about 20; deflate reaches 1,032.
	answerRatio = 100
	// answerRatioFrom is the unpacked length in bytes from which the ratio is checked.
	answerRatioFrom = 1 << 20
)

// gzipBody unpacks a worker's answer. The first Read reads the gzip header.
type gzipBody struct {
	packed   countedBody
	unpacked int64
	z        *gzip.Reader
}

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

func (b *gzipBody) Close() error { return b.packed.Close() }

type countedBody struct {
	io.ReadCloser
	n int64
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.n += int64(n)
	return n, err
}
