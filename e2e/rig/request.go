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

// Reply is the response to a request. After an error, Body has what came before it.
type Reply struct {
	ID         string // of the request
	Status     int    // 0: no response came
	Header     http.Header
	Body       string
	Close      bool // the server closes the connection after the response
	Sent, Done time.Time
	Err        error // of sending the request or of reading the body
}

// Chat returns the body of a chat request with one message and further members in JSON.
func Chat(model, text string, members ...string) string {
	turn := `"messages":[{"role":"user","content":` + Quoted(text) + `}]`
	return "{" + strings.Join(append([]string{`"model":` + Quoted(model), turn}, members...), ",") + "}"
}

// Quoted returns text as a JSON string.
func Quoted(text string) string {
	b, _ := json.Marshal(text) // a string always has an encoding
	return string(b)
}

// NextID returns a number that is unique within the rig.
func (r *Rig) NextID() int64 { return r.ids.Add(1) }

// Request is RequestTo for a path of the data plane.
func (r *Rig) Request(ctx context.Context, method, path, body string, headers ...string) *http.Request {
	r.T.Helper()
	return r.RequestTo(ctx, method, r.URL+path, body, headers...)
}

// RequestTo makes a request with the rig's key and a unique X-Request-Id, which engines receive
// too. headers alternate between names and values; an empty value removes the header.
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
	req.Header.Set("X-Request-Id", fmt.Sprintf("00000000-0000-4000-8000-%012x", r.NextID()))
	for i := 0; i+1 < len(headers); i += 2 {
		if req.Header.Del(headers[i]); headers[i+1] != "" {
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	return req
}

// Send sends a request and reads the whole response. It may be called on any goroutine.
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

// Post posts a body to a path of the data plane and reads the whole response, for at most
// [Patience]. It may be called on any goroutine.
func (r *Rig) Post(path, body string, headers ...string) Reply {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	return r.Send(r.Request(ctx, http.MethodPost, path, body, headers...))
}

// Duration returns the time from the start of the request to the end of the response.
func (a Reply) Duration() time.Duration { return a.Done.Sub(a.Sent) }

// Code returns the code of an error in OpenAI's format; "" for other responses.
func (a Reply) Code() string {
	var e struct {
		Error struct {
			Code string `json:"code"`
		} `json:"error"`
	}
	_ = json.Unmarshal([]byte(a.Body), &e) // other responses have no code
	return e.Error.Code
}

// CheckOK returns an error unless the response is complete, has status 200 and choices.
func (a Reply) CheckOK() error {
	if a.Err != nil {
		return a.Err
	}
	if a.Status != http.StatusOK || !strings.Contains(a.Body, `"choices"`) {
		return fmt.Errorf("the response is %d: %s", a.Status, a.Body)
	}
	return nil
}

// CheckRefusal returns an error unless the response has the status, the error code, and headers
// that let the client retry.
func (a Reply) CheckRefusal(status int, code string) error {
	switch {
	case a.Err != nil:
		return a.Err
	case a.Status != status || a.Code() != code:
		return fmt.Errorf("the response is %d, want %d %s: %s", a.Status, status, code, a.Body)
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

// AccessLine waits for the line of a request in the access log.
func (r *Rig) AccessLine(id string) (line map[string]any) {
	r.T.Helper()
	Eventually(r.T, func() error {
		for _, line = range r.AccessLines() {
			if line["request_id"] == id {
				return nil
			}
		}
		return errors.New("the access log has no line for " + id)
	})
	return line
}

// Stream is a response that is being read.
type Stream struct {
	ID     string
	Resp   *http.Response
	Cancel context.CancelFunc // disconnects the client

	t    *testing.T
	got  strings.Builder
	seen int // where the text of the last ReadUntil ends
}

// Open sends a request and returns when the header of the response has arrived. The request
// lasts at most three times [Patience].
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

// ReadUntil reads until the text arrives. It searches after the text of the last ReadUntil.
func (s *Stream) ReadUntil(text string) {
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

// ReadRest reads to the end and returns the whole body.
func (s *Stream) ReadRest() (string, error) {
	late := time.AfterFunc(Patience, s.Cancel)
	defer late.Stop()
	b, err := io.ReadAll(s.Resp.Body)
	s.got.Write(b)
	return s.got.String(), err
}
