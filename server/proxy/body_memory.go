package proxy

import (
	"time"

	"tierway/openai"
	"tierway/server/intake"
)

// noAnswerMemory returns the failure of an answer for which no memory is left after that many bytes.
// The worker is not at fault, and its work is charged.
func (a *attempt) noAnswerMemory(bytes int) *failure {
	a.x.s.metrics.BodiesRefused.Inc()
	a.bookEstimate(a.x.resolution.EstimateOutput(&a.x.parsed, bytes))
	cause := excluded("%w", intake.ErrBodyMemory)
	return &failure{sent: true, fault: cause, err: &openai.Error{
		Code:       openai.CodeOverloaded,
		RetryAfter: time.Second,
		Cause:      cause,
		Message: "The gateway has no memory left for the worker's answer (max_buffered_bytes). Request a shorter " +
			"answer, or try again later.",
	}}
}
