package proxy

import (
	"time"

	"tierway/openai"
	"tierway/server/intake"
)

// noAnswerMemory is the failure of an answer that finds no memory after so many bytes.
// The worker is not at fault, and its work is paid for.
func (a *attempt) noAnswerMemory(bytes int) *failure {
	a.x.s.metrics.BodiesRefused.Inc()
	a.estimate(a.x.resolution.Unreported(&a.x.parsed, bytes))
	cause := excluded("%w", intake.ErrBodyMemory)
	return &failure{sent: true, fault: cause, err: &openai.Error{Code: openai.CodeOverloaded, RetryAfter: time.Second, Cause: cause,
		Message: "The bodies that the gateway holds leave no memory for the worker's answer (max_buffered_bytes). Ask for less at once, or try again later."}}
}
