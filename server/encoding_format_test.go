package server

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

// TestPoolingWithoutAPoolIsRefusedByName: the answer names the key that is missing.
func TestPoolingWithoutAPoolIsRefusedByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, strings.Replace(plain, " pooling,", "", 1), fakeEngine())
		for _, path := range []string{"/pooling", "/v1/pooling", "/classify"} {
			got := r.post(path, `{"model":"small","input":"a"}`)
			if got.status != http.StatusNotFound || !strings.Contains(got.body, "endpoint_not_supported") ||
				!strings.Contains(got.body, "add pooling to `serves`") {
				t.Errorf("%s: %d %s", path, got.status, got.body)
			}
		}
	})
}

// TestBinaryEncodingFormatsAreRefusedByName before an engine works.
func TestBinaryEncodingFormatsAreRefusedByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, hits := rightsRig(t, "priority: batch")
		for _, path := range []string{"/v1/embeddings", "/pooling"} {
			for _, format := range []string{"bytes", "bytes_only", `b\u0079tes`} {
				got := r.post(path, `{"model":"small","input":"a","encoding_format":"`+format+`"}`, "Authorization", "Bearer key")
				if got.status != http.StatusBadRequest || !strings.Contains(got.body, `"param":"encoding_format"`) ||
					!strings.Contains(got.body, "send float or base64") || hits.Load() != 0 {
					t.Errorf("%s with %s: %d %s, %d requests of the engine", path, format, got.status, got.body, hits.Load())
				}
			}
		}
		for _, format := range []string{`"float"`, `"base64"`, "null"} {
			got := r.post("/v1/embeddings", `{"model":"small","input":"a","encoding_format":`+format+`}`, "Authorization",
				"Bearer key")
			if got.status != http.StatusOK {
				t.Errorf("%s: %d %s", format, got.status, got.body)
			}
		}
	})
}
