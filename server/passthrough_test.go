package server

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"unicode/utf16"
)

// rawRig has a pool that forwards /raw/* to an engine. got returns the last body that the engine
// received.
func rawRig(t *testing.T, engine string) (r *rig, got func() string) {
	t.Helper()
	var last string
	raw := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		last = string(body)
	})
	pools := fmt.Sprintf("auth: { keys: [ { name: acme, sha256: %s, priority: batch } ] }\npools: [ { name: raw, "+
		"engine: %s, paths: [\"/raw/*\"], workers: [ { name: raw-0, url: %q } ] } ]",
		digestOfKey, engine, startServer(t, raw))
	r = newRig(t, strings.Replace(plain, "auth: { required: false }", pools, 1), fakeEngine())
	return r, func() string { defer func() { last = "" }(); return last }
}

// TestTextsThatContainPriorityAreForwarded: the word is a field name only if a colon follows it, and
// only in an object.
func TestTextsThatContainPriorityAreForwarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, engine := range []string{"auto", "vllm", "llamacpp"} {
			r, got := rawRig(t, engine)
			for _, body := range []string{
				`[{"text":"a high-priority ticket"}]`, `[{"priority":-5}]`, `"priority"`, `priority`, `["priority",":"]`,
				`{"note":"priority","model":"x","model":"y"}`, `{"note":"set \"priority\": 1","a":1,"a":2}`,
				`{"note":["priority" ,1],"model":1,"model":2}`,
			} {
				if a := r.post("/raw/x", body, "Authorization", "Bearer key"); a.status != http.StatusOK || got() != body {
					t.Errorf("%s, %s: %d %s", engine, body, a.status, a.body)
				}
			}
		}
	})
}

// TestPassthroughPriorityIsCappedByItsClass: QU-08, in every spelling of the name. A body that the
// gateway cannot check is rejected.
func TestPassthroughPriorityIsCappedByItsClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, got := rawRig(t, "vllm")
		for _, name := range []string{`"priority":`, "\"priority\" \t\r\n:", `"prio\u0072ity":`} {
			if a := r.post("/raw/x", "\n {"+name+`-5}`, "Authorization", "Bearer key"); a.status != http.StatusOK ||
				!strings.Contains(got(), "20}") {
				t.Errorf("%s: %d %s", name, a.status, a.body)
			}
		}
		wide := func(order binary.AppendByteOrder, s string) string {
			var b []byte
			for _, u := range utf16.Encode([]rune(s)) {
				b = order.AppendUint16(b, u)
			}
			return string(b)
		}
		const urgent = `{"priority":-5}`
		for _, body := range []string{urgent + urgent, urgent[1:], "\xef\xbb\xbf" + urgent, wide(binary.LittleEndian, urgent),
			wide(binary.BigEndian, urgent),
			wide(binary.LittleEndian, "\ufeff"+urgent), wide(binary.BigEndian, "\ufeff"+urgent), "\x00\x00\x00{\x00\x00\x00}"} {
			a := r.post("/raw/x", body, "Authorization", "Bearer key")
			if sent := got(); body != urgent[1:] && (a.status != http.StatusBadRequest || sent != "") ||
				body == urgent[1:] && sent != body {
				t.Errorf("%q: %d, the engine got %q", body, a.status, sent)
			}
		}
		binaryBody := "\x00\x01\x02"
		if a := r.post("/raw/x", binaryBody, "Authorization", "Bearer key", "Content-Type",
			"application/octet-stream"); a.status != http.StatusOK || got() != binaryBody {
			t.Errorf("%d %s: a binary body is not forwarded", a.status, a.body)
		}
	})
}

// TestPassthroughRequestsCountUnderTheirRule in the metrics of tier decisions.
func TestPassthroughRequestsCountUnderTheirRule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := rawRig(t, "vllm")
		if a := r.post("/raw/x", "{}", "Authorization", "Bearer key"); a.status != http.StatusOK {
			t.Fatalf("%d %s", a.status, a.body)
		}
		if want := `tierway_tier_decisions_total{rule="path",tier="raw"} 1`; !strings.Contains(r.scrape(), want+"\n") {
			t.Errorf("there is no %s", want)
		}
	})
}
