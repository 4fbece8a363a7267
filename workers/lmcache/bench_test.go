package lmcache

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// BenchmarkLookup is the gateway's part of a look-up: the request over the loopback device, and an answer that costs
// the controller nothing.
func BenchmarkLookup(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprint(n, " tokens"), func(b *testing.B) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				_, _ = io.WriteString(w, `{"event_id":"x","layout_info":{"a":["LocalCPUBackend",768]}}`)
			}))
			defer s.Close()
			k := New(Config{URL: s.URL, Lookups: true})
			defer k.client.CloseIdleConnections()
			tokens := tokensFrom(100_000, n)
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := k.Lookup(b.Context(), tokens, false, nil); !ok {
					b.Fatal("no answer")
				}
			}
		})
	}
}
