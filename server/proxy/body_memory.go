package proxy

import (
	"time"

	"tierway/openai"
	"tierway/server/control"
)

// dropBody forgets the body of a request that is not sent again, so that a long answer
// does not hold it.
func dropBody(x *exchange) {
	x.parsed.req.Body = nil
	x.in.memory.Release()
}

// bodyMemory is memory for bodies of a tenant. Its owner releases it.
func (px *Proxy) bodyMemory(tenant string) control.BodyMemory {
	return control.BodyMemory{Budget: &px.bodies, Tenant: tenant}
}

// noAnswerMemory is the failure of an answer that finds no memory after so many bytes.
// The worker is not at fault, and its work is paid for.
func (a *attempt) noAnswerMemory(bytes int) *failure {
	a.x.s.metrics.BodiesRefused.Inc()
	a.x.settlement.estimate(a.x.resolution.unreported(&a.x.parsed, bytes))
	cause := excluded("%w", control.ErrBodyMemory)
	return &failure{left: true, blame: cause, err: &openai.Error{Code: openai.CodeOverloaded, RetryAfter: time.Second, Cause: cause,
		Message: "The bodies that the gateway holds leave no memory for the worker's answer (max_buffered_bytes). Ask for less at once, or try again later."}}
}

// noBodyMemory is the answer to a request whose body finds no memory.
func (px *Proxy) noBodyMemory() error {
	px.metrics.BodiesRefused.Inc()
	// Clients that were refused together must not return together.
	wait := time.Second + time.Duration(px.rand()%uint64(2*time.Second))
	return &openai.Error{Code: openai.CodeOverloaded, RetryAfter: wait, Cause: control.ErrBodyMemory,
		Message: "The request bodies that the gateway holds leave no memory for this one (max_buffered_bytes). Send fewer or shorter requests at a time, and try again in " + shortDuration(wait) + "."}
}
