package decisions_test

import (
	"bytes"
	"encoding/json"
	"fmt"

	"tierway/decisions"
)

// Example keeps the last two of three records and finds the ones that failed.
func Example() {
	log := decisions.NewLog(2)
	for _, d := range []*decisions.Decision{
		{RequestID: "a", Tier: "small", Result: decisions.Failed, Status: 502},
		{RequestID: "b", Tier: "small", Result: decisions.OK, Status: 200},
		{RequestID: "c", Tier: "large", Result: decisions.Failed, Status: 503},
	} {
		log.Add(d) // the record belongs to the log from here on
	}

	failed := decisions.Filter{Outcome: string(decisions.Failed)}
	found, more := log.Page(0, 10, failed.Matches)
	for _, e := range found {
		fmt.Println(e.Decision.RequestID, e.Decision.Tier, e.Decision.Status)
	}
	fmt.Println("more:", more)
	// Output:
	// c large 503
	// more: false
}

// ExampleAccessLog writes the line of a request that a limit refused.
func ExampleAccessLog() {
	var line bytes.Buffer
	log := decisions.NewAccessLog(&line)
	log.Write(&decisions.Decision{RequestID: "r1", Method: "POST", Route: "/v1/chat/completions", Tenant: "search",
		Result: decisions.Refused, Status: 429, Code: "rate_limit_exceeded", Limit: "rpm", DurationMs: 0.2})
	var fields struct {
		Status  int
		Outcome string
		Code    string
		Limit   string
	}
	if err := json.Unmarshal(line.Bytes(), &fields); err != nil {
		fmt.Println(err)
	}
	fmt.Printf("%+v\n", fields)
	// Output:
	// {Status:429 Outcome:refused Code:rate_limit_exceeded Limit:rpm}
}
