package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Reply is an answer that was read as far as it came.
type Reply struct {
	ID         string // of the request
	Status     int    // 0: no answer came
	Header     http.Header
	Body       string
	Close      bool // the connection ends with it
	Sent, Done time.Time
	Err        error // of sending the request, or of reading the body
}

// Chat is the body of a request for a chat whose only turn is text. More are further
// members in JSON.
func Chat(model, text string, more ...string) string {
	turn := `"messages":[{"role":"user","content":` + Quoted(text) + `}]`
	return "{" + strings.Join(append([]string{`"model":` + Quoted(model), turn}, more...), ",") + "}"
}

// Quoted is text in JSON.
func Quoted(text string) string {
	b, _ := json.Marshal(text) // a string always has an encoding
	return string(b)
}

// Next returns a number that no other request of the rig has.
func (r *Rig) Next() int64 { return r.ids.Add(1) }

// Request is RequestTo a path of the data plane.
func (r *Rig) Request(ctx context.Context, method, path, body string, headers ...string) *http.Request {
	r.T.Helper()
	return r.RequestTo(ctx, method, r.URL+path, body, headers...)
}

// RequestTo makes a request with the rig's key and an id of its own, a UUID, which
// engines receive too. Headers are name and value in turn; an empty value removes
// the header.
func (r *Rig) RequestTo(ctx context.Context, method, url, body string, headers ...string) *http.Request {
	r.T.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		r.T.Error(err)
		return &http.Request{Header: http.Header{}} // sending it fails
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.Key != "" {
		req.Header.Set("Authorization", "Bearer "+r.Key)
	}
	req.Header.Set("X-Request-Id", fmt.Sprintf("00000000-0000-4000-8000-%012x", r.Next()))
	for i := 0; i+1 < len(headers); i += 2 {
		if req.Header.Del(headers[i]); headers[i+1] != "" {
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	return req
}

// Send sends a request and reads its answer. It may be called on any goroutine.
func (r *Rig) Send(req *http.Request) Reply {
	got := Reply{ID: req.Header.Get("X-Request-Id"), Sent: time.Now()}
	resp, err := r.Client.Do(req)
	if err != nil {
		got.Err, got.Done = err, time.Now()
		return got
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	got.Status, got.Header, got.Body, got.Err, got.Done = resp.StatusCode, resp.Header, string(body), err, time.Now()
	return got
}

// Try posts a body and reads the answer. It may be called on any goroutine.
func (r *Rig) Try(path, body string, headers ...string) Reply {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	return r.Send(r.Request(ctx, http.MethodPost, path, body, headers...))
}

// Took is the time from the request's first byte to the answer's last.
func (a Reply) Took() time.Duration { return a.Done.Sub(a.Sent) }

// Code is the code of an error in OpenAI's shape; empty for other answers.
func (a Reply) Code() string {
	var e struct {
		Error struct {
			Code string `json:"code"`
		} `json:"error"`
	}
	_ = json.Unmarshal([]byte(a.Body), &e) // other answers have none
	return e.Error.Code
}

// Fails reports what is wrong with an answer that should be whole.
func (a Reply) Fails() error {
	if a.Err != nil {
		return a.Err
	}
	if a.Status != http.StatusOK || !strings.Contains(a.Body, `"choices"`) {
		return fmt.Errorf("the answer is %d: %s", a.Status, a.Body)
	}
	return nil
}

// Refusal reports what is wrong with an answer that should be an error with that
// status and code, after which the client may retry.
func (a Reply) Refusal(status int, code string) error {
	switch {
	case a.Err != nil:
		return a.Err
	case a.Status != status || a.Code() != code:
		return fmt.Errorf("the answer is %d, want %d %s: %s", a.Status, status, code, a.Body)
	}
	seconds, err := strconv.Atoi(a.Header.Get("Retry-After"))
	if err != nil || seconds < 1 {
		return fmt.Errorf("Retry-After is %q", a.Header.Get("Retry-After"))
	}
	ms, err := strconv.Atoi(a.Header.Get("Retry-After-Ms"))
	if err != nil || ms < 1 || ms > 1000*seconds {
		return fmt.Errorf("retry-after-ms is %q beside Retry-After %d", a.Header.Get("Retry-After-Ms"), seconds)
	}
	return nil
}

// Logged waits for the access log's line of a request.
func (r *Rig) Logged(id string) (line map[string]any) {
	r.T.Helper()
	Eventually(r.T, func() error {
		for _, line = range r.Access() {
			if line["request_id"] == id {
				return nil
			}
		}
		return errors.New("there is no access line of " + id)
	})
	return line
}

// Stream is an answer that is being read.
type Stream struct {
	ID     string
	Resp   *http.Response
	Cancel context.CancelFunc // ends the request as a client that leaves

	t    *testing.T
	got  strings.Builder
	seen int // where the text of the last Until ends
}

// Open sends a request and returns when the answer's header is there.
func (r *Rig) Open(req *http.Request) *Stream {
	r.T.Helper()
	ctx, cancel := context.WithTimeout(req.Context(), 3*Patience)
	resp, err := r.Client.Do(req.WithContext(ctx))
	if err != nil {
		cancel()
		r.T.Fatal(err)
	}
	r.T.Cleanup(func() {
		cancel()
		resp.Body.Close()
	})
	return &Stream{ID: req.Header.Get("X-Request-Id"), Resp: resp, Cancel: cancel, t: r.T}
}

// Until reads until the answer has the text, behind that of an earlier Until.
func (s *Stream) Until(text string) {
	s.t.Helper()
	buf := make([]byte, 4096)
	late := time.AfterFunc(Patience, s.Cancel)
	defer late.Stop()
	for {
		if at := strings.Index(s.got.String()[s.seen:], text); at >= 0 {
			s.seen += at + len(text)
			return
		}
		n, err := s.Resp.Body.Read(buf)
		s.got.Write(buf[:n])
		if n == 0 && err != nil {
			s.t.Fatalf("the stream ended with %v before %q; it was %q", err, text, s.got.String())
		}
	}
}

// Rest reads to the end and returns everything.
func (s *Stream) Rest() (string, error) {
	late := time.AfterFunc(Patience, s.Cancel)
	defer late.Stop()
	b, err := io.ReadAll(s.Resp.Body)
	s.got.Write(b)
	return s.got.String(), err
}
