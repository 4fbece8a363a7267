package chaos

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// answer applies a fault before or instead of the inner handler. It returns true if the answer is
// complete.
func (f *Fault) answer(w http.ResponseWriter, r *http.Request, body []byte) bool {
	switch f.Kind {
	case Slow:
		timer := time.NewTimer(f.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
			return false
		case <-r.Context().Done():
		}
	case Reset:
		drop(w, true)
	case Close, Stale:
		drop(w, false)
	case Hang:
		<-r.Context().Done()
	case Garbage:
		write(w, []byte("\x16\x03\x01\x02 this is no HTTP\r\n\r\n\x00\xff\xfe"))
	case ErrorFirst:
		f.errorFirst(w)
	case Endless:
		f.endless(w, body)
	default:
		f.status(w)
	}
	return true
}

// seize hijacks the connection after flushing the bytes written so far.
func seize(w http.ResponseWriter) (net.Conn, error) {
	rc := http.NewResponseController(w)
	conn, buffered, err := rc.Hijack()
	if err != nil {
		return nil, err
	}
	if err := buffered.Flush(); err != nil {
		_ = conn.Close() // the client has left
		return nil, err
	}
	return conn, nil
}

// drop closes the connection at once. With reset the peer gets RST and may lose bytes that it has
// not read.
func drop(w http.ResponseWriter, reset bool) {
	conn, err := seize(w)
	if err != nil {
		panic(http.ErrAbortHandler) // without a connection to hijack, net/http closes it
	}
	if c, ok := conn.(interface{ SetLinger(seconds int) error }); ok && reset {
		_ = c.SetLinger(0) // fails only on a closed connection
	}
	_ = conn.Close() // an error means that the peer closed first
}

// write sends raw bytes and closes the connection.
func write(w http.ResponseWriter, raw []byte) {
	conn, err := seize(w)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	_, _ = conn.Write(raw) // the client may have left
	_ = conn.Close()
}

// status answers with a whole body.
func (f *Fault) status(w http.ResponseWriter) {
	status, kind, body := f.Status, f.ContentType, f.Body
	if kind == "" {
		kind = "application/json"
	}
	if body == "" {
		body = faultBody("the simulated engine refused this request", "simulated_error", status)
	}
	switch f.Kind {
	case Redirect:
		status, body = http.StatusFound, ""
		w.Header().Set("Location", "http://127.0.0.1:1/elsewhere")
	case HTML:
		status, kind, body = http.StatusOK, "text/html; charset=utf-8",
			"<!doctype html><title>Sign in</title><h1>Sign in</h1>"
	case JSONError:
		status, body = http.StatusOK, faultBody("an error in a successful answer", "simulated_error",
			http.StatusInternalServerError)
	case Empty:
		status, body = http.StatusOK, ""
	case Reject:
		if status == 0 {
			status = http.StatusBadRequest
		}
		field := f.field()
		if field == "include_usage" {
			field = "stream_options.include_usage"
		}
		body = faultBody("extra inputs are not permitted: "+field, "BadRequestError", status)
	}
	if f.RetryAfter != "" {
		w.Header().Set("Retry-After", f.RetryAfter)
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body) // the result does not matter
}

func faultBody(message, kind string, code int) string {
	// strings and a number
	b, _ := json.Marshal(map[string]any{"error": map[string]any{"message": message, "type": kind, "param": nil,
		"code": code}})
	return string(b)
}

// errorFrame returns an error event in an engine's format, with what that engine sends after it.
func (f *Fault) errorFrame() string {
	const message = "the simulated engine failed"
	switch f.Form {
	case FormSGLang:
		return `data: {"error":{"object":"error","message":"` + message +
			`","type":"InternalServerError","param":null,"code":500}}` + "\n\n"
	case FormLlamaCpp:
		return `error: {"code":500,"message":"` + message + `","type":"server_error"}` + "\n\n"
	case FormMessages:
		return "event: error\ndata: " + `{"type":"error","error":{"type":"overloaded_error","message":"` + message + `"}}` +
			"\n\n"
	}
	return "data: " + faultBody(message, "BadRequestError", http.StatusBadRequest) + "\n\ndata: [DONE]\n\n"
}

func (f *Fault) errorFirst(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	_, _ = io.WriteString(w, f.errorFrame()) // the result does not matter
}

// endlessBlock is the size of one write: a few of them fill a socket.
const endlessBlock = 32 << 10

// endless writes until the client leaves.
func (f *Fault) endless(w http.ResponseWriter, body []byte) {
	var asked struct {
		Stream bool `json:"stream"`
	}
	_ = json.Unmarshal(body, &asked) // a body that is not JSON requests no stream
	block := bytes.Repeat([]byte("and so on "), endlessBlock/10)
	if asked.Stream {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		event :=
			[]byte(
				`data: {"id":"chatcmpl-endless","object":"chat.completion.chunk","created":0,"model":"","choices":[{"index":0,"delta":{"content":"and so on "},"finish_reason":null}]}` + "\n\n")
		block = bytes.Repeat(event, endlessBlock/len(event))
	} else {
		w.Header().Set("Content-Type", "application/json")
		if _, err := io.WriteString(w, `{"id":"`); err != nil {
			return
		}
	}
	for {
		if _, err := w.Write(block); err != nil {
			return
		}
	}
}
