package server

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"unicode/utf16"
)

// rawRig has a pool that passes /raw/* to an engine, whose last body it returns.
func rawRig(t *testing.T, engine string) (r *rig, got func() string) {
	t.Helper()
	var last string
	raw := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		last = string(body)
	})
	pools := fmt.Sprintf("auth: { keys: [ { name: acme, sha256: %s, priority: batch } ] }\npools: [ { name: raw, "+
		"engine: %s, paths: [\"/raw/*\"], workers: [ { name: raw-0, url: %q } ] } ]",
		digestOfKey, engine, served(t, raw))
	r = newRig(t, strings.Replace(plain, "auth: { required: false }", pools, 1), fakeEngine())
	return r, func() string { defer func() { last = "" }(); return last }
}

// TestTextsThatSpeakOfPriorityPass: the word is one of many, and a name only where a
// colon follows it; what is no object has no names at all.
func TestTextsThatSpeakOfPriorityPass(t *testing.T) {
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
}

// TestNoPassedPriorityIsAboveItsClass: QU-08, however its name is written. What the
// gateway cannot read for it does not pass.
func TestNoPassedPriorityIsAboveItsClass(t *testing.T) {
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
	const asks = `{"priority":-5}`
	for _, body := range []string{asks + asks, asks[1:], "\xef\xbb\xbf" + asks, wide(binary.LittleEndian, asks),
		wide(binary.BigEndian, asks),
		wide(binary.LittleEndian, "\ufeff"+asks), wide(binary.BigEndian, "\ufeff"+asks), "\x00\x00\x00{\x00\x00\x00}"} {
		a := r.post("/raw/x", body, "Authorization", "Bearer key")
		if sent := got(); body != asks[1:] && (a.status != http.StatusBadRequest || sent != "") ||
			body == asks[1:] && sent != body {
			t.Errorf("%q: %d, the engine got %q", body, a.status, sent)
		}
	}
	binaryBody := "\x00\x01\x02"
	if a := r.post("/raw/x", binaryBody, "Authorization", "Bearer key", "Content-Type",
		"application/octet-stream"); a.status != http.StatusOK || got() != binaryBody {
		t.Errorf("%d %s: bytes that are not said to be JSON do not pass", a.status, a.body)
	}
}

// Whatever way a request comes to its pool, the rule that gave it is counted, and
// what asks no model is told as a plain call.
func TestAPassedPathIsDecidedByItsRule(t *testing.T) {
	r, _ := rawRig(t, "vllm")
	if a := r.post("/raw/x", "{}", "Authorization", "Bearer key"); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if want := `tierway_tier_decisions_total{rule="path",tier="raw"} 1`; !strings.Contains(r.scrape(), want+"\n") {
		t.Errorf("there is no %s", want)
	}
}
