package sdk_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"sync"
)

// recorder records every request and answers it with an object that satisfies the SDK.
type recorder struct {
	mu   sync.Mutex
	seen []recorded
}

// recorded is a request as a worker received it.
type recorded struct {
	method string
	target string // path and query as they were sent
	header http.Header
	body   []byte
}

// route names the request in messages.
func (r recorded) route() string { return r.method + " " + r.target }

const recordedAnswer = `{"id":"recorded","object":"list","created":1,"created_at":1,"model":"m","status":"completed",` +
	`"data":[],"has_more":false,"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"ok"}}],"output":[],"deleted":true}`

func (rec *recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	rec.mu.Lock()
	rec.seen = append(rec.seen, recorded{r.Method, r.RequestURI, r.Header.Clone(), body})
	rec.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, recordedAnswer) // a client that left shows in its own test
}

// take returns and removes the recorded requests of clients. It skips the gateway's own requests (for
// health and load), which have its User-Agent.
func (rec *recorder) take() []recorded {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	seen := slices.DeleteFunc(rec.seen, func(r recorded) bool { return r.header.Get("User-Agent") == "tierway" })
	rec.seen = nil
	return seen
}

// keptHeaders returns the SDK's headers that the gateway must forward unchanged. The credential is not
// forwarded.
func keptHeaders() []string {
	return []string{"Accept", "Openai-Beta", "User-Agent", "X-Stainless-Lang", "X-Stainless-Os", "X-Stainless-Arch",
		"X-Stainless-Package-Version", "X-Stainless-Retry-Count", "X-Stainless-Runtime", "X-Stainless-Runtime-Version"}
}

// fingerprint returns all parts of a request that must be equal. It replaces the boundaries of
// multipart bodies, because they are random.
func (r recorded) fingerprint() string {
	kind, body := r.header.Get("Content-Type"), r.body
	if _, params, err := mime.ParseMediaType(kind); err == nil && params["boundary"] != "" {
		kind = strings.ReplaceAll(kind, params["boundary"], "BOUNDARY")
		body = bytes.ReplaceAll(body, []byte(params["boundary"]), []byte("BOUNDARY"))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\nContent-Type: %s\n", r.method, r.target, kind)
	for _, name := range keptHeaders() {
		if v, ok := r.header[name]; ok {
			fmt.Fprintf(&b, "%s: %q\n", name, v)
		}
	}
	fmt.Fprintf(&b, "\n%s", body)
	return b.String()
}

// withModel returns the request with another model and no other byte changed.
// It reads bodies with encoding/json and mime/multipart, unlike the gateway.
func (r recorded) withModel(model string) (recorded, error) {
	from, to, err := r.modelAt()
	if err != nil || from == to {
		return r, err
	}
	if kind, _, err := mime.ParseMediaType(r.header.Get("Content-Type")); err == nil && kind == "application/json" {
		model = fmt.Sprintf("%q", model)
	}
	r.body = slices.Concat(r.body[:from], []byte(model), r.body[to:])
	return r, nil
}

// modelAt returns the position of the model in the body; from equals to if there is none.
func (r recorded) modelAt() (from, to int, err error) {
	kind, params, err := mime.ParseMediaType(r.header.Get("Content-Type"))
	switch {
	case err != nil || len(r.body) == 0:
		return 0, 0, nil // without a type there is no body
	case kind == "application/json":
		return jsonModelAt(r.body)
	case kind == "multipart/form-data":
		return formModelAt(r.body, params["boundary"])
	}
	return 0, 0, nil
}

// jsonModelAt finds the value of the top level's key model.
func jsonModelAt(body []byte) (from, to int, err error) {
	d := json.NewDecoder(bytes.NewReader(body))
	if _, err := d.Token(); err != nil {
		return 0, 0, fmt.Errorf("reading a recorded body: %w", err)
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return 0, 0, fmt.Errorf("reading a recorded body: %w", err)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return 0, 0, fmt.Errorf("reading a recorded body: %w", err)
		}
		if end := int(d.InputOffset()); key == "model" {
			return end - len(value), end, nil
		}
	}
	return 0, 0, nil
}

// formModelAt finds the content of the part named model.
func formModelAt(body []byte, boundary string) (from, to int, err error) {
	for parts := multipart.NewReader(bytes.NewReader(body), boundary); ; {
		part, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			return 0, 0, nil
		}
		if err != nil {
			return 0, 0, fmt.Errorf("reading a recorded form: %w", err)
		}
		content, err := io.ReadAll(part)
		if err != nil {
			return 0, 0, fmt.Errorf("reading a recorded form: %w", err)
		}
		if part.FormName() == "model" {
			head := headOf(part.Header)
			at := bytes.Index(body, []byte(head+string(content)+"\r\n--"+boundary))
			if at < 0 {
				return 0, 0, fmt.Errorf("the part model of a form is not written as %q", head)
			}
			return at + len(head), at + len(head) + len(content), nil
		}
	}
}

// headOf returns the header of a part with its blank line, as SDKs write it.
func headOf(h textproto.MIMEHeader) string {
	return "Content-Disposition: " + h.Get("Content-Disposition") + "\r\n\r\n"
}
