package proxy

import (
	"encoding/json"
	"net/http"
	"time"

	"tierway/decisions"
	"tierway/openai"
	"tierway/server/intake"
	"tierway/server/learning"
)

type feedbackAnswer struct {
	Object string `json:"object"`
	ID     string `json:"id"` // of the labelled request
}

// acceptFeedback writes a client's label of an earlier answer. It counts against the limits of requests, and costs no
// tokens. Without learning.directory, a pool that covers the path gets the request.
func (x *exchange) acceptFeedback() error {
	if x.s.learning == nil {
		if intake.PassingPool(&x.in, &x.caller) != nil {
			return x.passUnrouted()
		}
		return &openai.Error{Code: openai.CodeFeedbackDisabled,
			Message: "This gateway records no feedback. Operator: set `learning.directory`, and restart the gateway."}
	}
	x.inLedger = false // it has no usage
	parsed, feedback, err := x.s.intake.ReadFeedback(&x.in, &x.caller)
	if x.parsed = parsed; err != nil {
		return err
	}
	if err = x.charge(x.s.control.Stores.Limits); err != nil {
		return err
	}
	err = x.s.learning.AddLabels(learning.Label{ID: feedback.ID, Time: time.Now().UTC(), Tenant: x.caller.Tenant,
		Tier: x.s.answeredTier(feedback.ID, x.caller.Tenant), OK: feedback.OK, Weight: feedback.Weight,
		Source: learning.SourceFeedback})
	if err != nil {
		return &openai.Error{Code: openai.CodeOverloaded, RetryAfter: time.Second, Cause: err,
			Message: "Too much feedback waits to be written. Try again in 1 s."}
	}
	body, err := json.Marshal(feedbackAnswer{Object: "feedback", ID: feedback.ID})
	if err != nil {
		return err
	}
	x.ending.result = decisions.OK
	if x.answerWhole(http.StatusAccepted, nil, body) != nil {
		x.ending.result = decisions.ClientGone
	}
	return nil
}

// answeredTier returns the tier that answered a request of a tenant, or "" if the records in memory do not have it. The
// training then takes it from the features.
func (px *Proxy) answeredTier(id, tenant string) string {
	find := func() []decisions.Entry {
		found, _ := px.records.log.Page(0, 1, func(d *decisions.Decision) bool {
			return d.RequestID == id && d.Tenant == tenant && d.Result == decisions.OK && d.Tier != ""
		})
		return found
	}
	found := find()
	if len(found) == 0 {
		px.FlushRecords() // the client may have received that answer just now
		found = find()
	}
	if len(found) == 0 {
		return ""
	}
	return found[0].Decision.Tier
}
