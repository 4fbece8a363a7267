package engines

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

// Priority is what an engine makes of the priority that a request carries.
type Priority uint8

// What engines make of a request's priority.
const (
	PriorityIgnored Priority = iota // passed over: engines without such a field, and some versions of vLLM
	PriorityRefused                 // vLLM without --scheduling-policy priority: 400 to every value but 0
	PriorityFirst                   // vLLM with it: of those who wait the lowest is next, of equals who came first
)

// priority is the value of a request's priority as vLLM reads it: integers, and
// what can be taken for one without loss, as "5", 5.0 and true.
type priority struct {
	value int64
	given bool
	wrong bool // it is no integer
}

// UnmarshalJSON takes every value: what is wrong matters only to an engine that
// reads priorities.
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

// newPlan begins the plan of a request that asked for a place in the engine's own
// line, and notes in its account what it asked for.
func (e *Engine) newPlan(r *request, stream bool, asked priority) (*plan, error) {
	r.account.Priority, r.account.Prioritized = asked.value, asked.given && !asked.wrong
	p := &plan{stream: stream, script: r.script, account: r.account}
	switch {
	case e.c.Priority == PriorityIgnored:
		return p, nil
	case asked.wrong:
		return nil, badRequest("priority", "priority must be an integer")
	case e.c.Priority == PriorityRefused && asked.value != 0:
		// vLLM names no param here either.
		return nil, badRequest("", "Got priority %d, but priority scheduling is off: start the engine with it, or send none", asked.value)
	}
	p.priority = asked.value
	return p, nil
}
