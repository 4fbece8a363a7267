package engines

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

// Priority is how an engine handles the priority of a request.
type Priority uint8

// Ways to handle a request's priority.
const (
	PriorityIgnored Priority = iota // ignored: engines without such a field, and some versions of vLLM
	PriorityRefused                 // vLLM without --scheduling-policy priority: 400 for every value but 0
	PriorityFirst                   // vLLM with that option: the lowest value is next, then the earliest arrival
)

// priority is the value of a request's priority as vLLM parses it: integers, and values that
// convert without loss, such as "5", 5.0 and true.
type priority struct {
	value int64
	given bool
	wrong bool // not an integer
}

// UnmarshalJSON accepts every value: an invalid one matters only to an engine that reads
// priorities.
func (p *priority) UnmarshalJSON(b []byte) error {
	*p = priority{given: true}
	var text string
	switch s := string(b); {
	case s == "true":
		p.value = 1
		return nil
	case s == "false":
		return nil
	case json.Unmarshal(b, &text) == nil && b[0] == '"':
		b = []byte(strings.TrimSpace(text))
	}
	if n, err := strconv.ParseInt(string(b), 10, 64); err == nil {
		p.value = n
		return nil
	}
	f, err := strconv.ParseFloat(string(b), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) >= 1<<63 {
		p.wrong = true
		return nil
	}
	p.value = int64(f)
	return nil
}

// newPlan returns the plan of a request with a place in the engine's queue, and stores the
// requested priority in its account.
func (e *Engine) newPlan(r *request, stream bool, asked priority) (*plan, error) {
	r.account.Priority, r.account.Prioritized = asked.value, asked.given && !asked.wrong
	p := &plan{stream: stream, script: r.script, account: r.account}
	switch {
	case r.script.Refuse > 0:
		return nil, &apiError{status: r.script.Refuse, afterSchema: true, message: "the queue of the engine is full"}
	case e.c.Priority == PriorityIgnored:
		return p, nil
	case asked.wrong:
		return nil, badRequest("priority", "priority must be an integer")
	case e.c.Priority == PriorityRefused && asked.value != 0:
		// vLLM names no param here either.
		return nil, badRequest("", "Got priority %d, but priority scheduling is off: start the engine with it, or send none",
			asked.value)
	}
	p.priority = asked.value
	return p, nil
}
