package hooks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"strings"

	"tierway/http1"
	"tierway/openai"
	"tierway/workers"
)

type httpCaller struct {
	peer      *workers.Peer
	path      string
	maxAnswer int64 // longest answer in bytes
}

// causeJSON is the cause of an answer without an action.
const causeJSON = "the answer is not a JSON object with an action"

func (c *httpCaller) call(ctx context.Context, r *Request) Reply {
	h := http.Header{
		"Content-Type": {"application/json"},
		"User-Agent":   {"tierway"},
		"X-Request-Id": {r.ID},
		"X-Tenant":     {r.Tenant},
		// The services of several endpoints distinguish their bodies by it.
		"X-Tierway-Path": {r.Path},
	}
	maps.Copy(h, r.Trace)
	resp, err := c.peer.Send(ctx, &http1.Request{Method: http.MethodPost, Path: c.path, Header: h, Body: [][]byte{r.Body}})
	if err != nil {
		return sendFailure(err)
	}
	defer resp.Body.Close()
	if resp.Status != http.StatusOK {
		reply := failed(fmt.Sprintf("the status is %d", resp.Status))
		// A rejected request shows nothing about the next one. With 408 and 429 the service is too slow or too busy.
		reply.excluded = resp.Status >= 400 && resp.Status < 500 && resp.Status != http.StatusRequestTimeout &&
			resp.Status != http.StatusTooManyRequests
		return reply
	}
	memory := &metered{Memory: r.Memory}
	text, err := openai.Decode(resp.Header.Get("Content-Encoding"), resp.Body, resp.ContentLength, c.maxAnswer, memory)
	defer memory.returnAll()
	if err != nil {
		return decodeFailure(err, memory)
	}
	return c.parse(text, r.Memory)
}

// parse returns the reply in the text of an answer. The changed body is a copy with its own memory.
func (c *httpCaller) parse(text []byte, memory openai.Memory) (reply Reply) {
	a, cause := readAnswer(text)
	if cause != "" {
		return failed(cause)
	}
	for _, name := range [...]string{"tenant", "key", "path"} {
		if a[name] != nil {
			return Reply{Result: Refused, Cause: "the answer has the member " + name + ", which no hook may change"}
		}
	}
	changes := a["body"] != nil && string(a["body"]) != "null"
	switch a.text("action") {
	case "allow":
		if changes { // the service relies on a change that would have no effect
			return failed("the answer has the action allow with a body; write transform to change the request")
		}
		return Reply{Result: Allowed}
	case "reject":
		return Reply{Result: Rejected, Reason: reasonOf(a.text("reason"))}
	case "transform":
		if !changes {
			return failed("the answer has the action transform without a body")
		}
		if memory.Reserve(int64(len(a["body"]))) != nil {
			return failedMemory()
		}
		return Reply{Result: Transformed, Body: bytes.Clone(a["body"])}
	case "":
		return failed(causeJSON)
	}
	return failed("the action of the answer is not allow, reject or transform")
}

// answer is the members of an answer as JSON, by their names. action, reason and body are those of the fork's answers;
// tenant, key and path state what no hook may change.
type answer map[string][]byte

// readAnswer reads an answer without copying it, or returns what is wrong with it. A name in another case counts as
// the name, and a second value is an error: the service means one of the two.
func readAnswer(text []byte) (a answer, cause string) {
	r := (&openai.Request{Body: text}).Reader()
	if !json.Valid(text) || r.Next() != '{' {
		return nil, causeJSON
	}
	a = answer{}
	for r.Enter('{'); r.More('}'); {
		name := strings.ToLower(string(r.Name()))
		value := r.Skip()
		switch name {
		case "action", "reason", "body", "tenant", "key", "path":
			if a[name] != nil {
				return nil, "the answer has the member " + name + " twice"
			}
			a[name] = value
		}
		if value == nil {
			return nil, "the answer is nested too deeply"
		}
	}
	return a, ""
}

// text returns the text of a member; empty if it is none.
func (a answer) text(name string) (text string) {
	_ = json.Unmarshal(a[name], &text) // another kind of value is no text
	return text
}

func (c *httpCaller) close() { c.peer.Close() }

// sendFailure describes a request that failed without repeating bytes of the answer.
func sendFailure(err error) Reply {
	failure, ok := errors.AsType[*http1.SendError](err)
	if !ok {
		return failed("no answer")
	}
	switch failure.Phase {
	case http1.PhasePrepare:
		return Reply{Result: Failed, Cause: "the call cannot be written as HTTP", excluded: true}
	case http1.PhaseConnect:
		if dial, ok := errors.AsType[*net.OpError](err); ok {
			return failed("no connection: " + dial.Error())
		}
		return failed("no connection")
	case http1.PhaseWrite:
		return failed("the connection broke off while the request was sent")
	}
	return failed("the connection broke off before a complete and valid answer")
}

// decodeFailure describes an answer that was not read.
func decodeFailure(err error, memory *metered) Reply {
	refused, ok := errors.AsType[*openai.RequestError](err)
	switch {
	case memory.refused:
		return failedMemory()
	case ok && refused.Reason == openai.CodeRequestTooLarge:
		return failed("the answer is longer than max_body_bytes")
	case ok:
		return failed("the answer has an invalid Content-Encoding")
	}
	return failed("the answer broke off")
}

func failedMemory() Reply { return Reply{Result: Failed, Cause: CauseMemory, excluded: true} }

// metered is the memory of one answer.
type metered struct {
	openai.Memory
	used    int64
	refused bool
}

func (m *metered) Reserve(n int64) error {
	err := m.Memory.Reserve(n)
	if err == nil {
		m.used += n
	} else {
		m.refused = true
	}
	return err
}

func (m *metered) Return(n int64) {
	m.used -= n
	m.Memory.Return(n)
}

func (m *metered) returnAll() {
	if m.used > 0 {
		m.Return(m.used)
	}
}
