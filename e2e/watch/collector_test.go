package watch

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// collector accepts OTLP exports over HTTP and keeps their uncompressed bytes.
type collector struct {
	*httptest.Server

	mu      sync.Mutex // guards the two below
	raw     strings.Builder
	exports int
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body io.Reader = r.Body
		if r.Header.Get("Content-Encoding") == "gzip" {
			unpacked, err := gzip.NewReader(r.Body)
			if err != nil {
				t.Error(err)
				return
			}
			body = unpacked
		}
		b, err := io.ReadAll(body)
		if err != nil {
			t.Error(err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.raw.Write(b)
		c.exports++
	}))
	t.Cleanup(c.Close)
	return c
}

// received returns the bytes of all exports.
func (c *collector) received() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.raw.String()
}
