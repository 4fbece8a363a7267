package openai

import (
	"strings"
	"testing"
)

func TestRefusalsAreReadInEveryForm(t *testing.T) {
	long := strings.Repeat("é", messageMax)
	for body, want := range map[string]string{
		`{"error":{"message":"m"}}`: "m", `{"message":"m"}`: "m", `{"Message":"m"}`: "m", `{"msg":"m","code":1}`: "m",
		`{"title":"m","type":"about:blank","status":400}`: "m", `{"title":"t","detail":"m"}`: "m",
		`{"message":["m","n"]}`: `["m","n"]`, `{"message":{"detail":[1]}}`: `{"detail":[1]}`, `{"error":{"detail":"m"}}`: "m",
		`{"errors":["m"]}`: "m", `["m","n"]`: "m", `"m"`: "m", ` "a\"b" `: `a"b`, "m": "m", " two\nlines \n": "two\nlines",
		`{"error":{"type":"error","error":{"message":"m"}}}`: "m", `{"error":{"message":"m","error":"Bad Request"}}`: "m",
		`{"error":"Bad Request","reason":"m"}`: "Bad Request: m", `{"error":{"type":"x","reason":"m"},"status":400}`: "m",
		`{"reason":"r","message":"m"}`: "m", `{"errors":{"top_p":["m"]},"title":"t"}`: `{"top_p":["m"]}`,
		`{"fault":{"faultstring":"m","detail":{"errorcode":"c"}}}`: "m", `{"error":{"error":{"message":"m"}}}`: "m",
		`{"error":{"error":{"error":{"message":"m"}}}}`: "m", `{"error":{"error":{"reason":"m"}}}`: "m", `{"reason":"m"}`: "m",
		`{"error":{"code":400,"error":"m"}}`: "m", `{"error":{"error":{"error":"m"}}}`: "m", `{"faultstring":"m"}`: "m",
		`{"detail":{"detail":"m"}}`: "m", `{"detail":{"error":{"message":"m"}}}`: "m",
		`{"detail":{"detail":{"message":"m"}}}`:    `{"message":"m"}`, // each level is read twice
		`{"errors":{"top_p":["m"]},"message":"t"}`: "t", `{"errors":{}}`: "",
		"über": "über", `{"message":""}`: "", `{}`: "", `[]`: "", `[1]`: "1", "": "", "<html>": "", " <!DOCTYPE html>": "",
		"a\x00b": "", "\xff": "", `{"message":"cut`: "", "[cut": "", "{\"error\":\"m\"}\n\ndata: x\n\n": "m", strings.Repeat("x", textMax+1): "",
		"Traceback (most recent call last):\n x": "", `{"message":"` + long + `"}`: long[:messageMax] + "…",
	} {
		e, ok := RefusalOf([]byte(body))
		if e.Message != want || ok != (want != "") {
			t.Errorf("%.80q: %.80q, %v, want %.80q", body, e.Message, ok, want)
		}
	}
	if e, ok := RefusalOf([]byte(`{"error":{"code":"content_filter"}}`)); !ok || e.Code != "content_filter" {
		t.Errorf("a code without a message: %+v, %v", e, ok)
	}
}

func TestOverloadIsRecognizedInEverySpelling(t *testing.T) {
	for body, want := range map[string]bool{
		`{"error":{"message":"m","code":503}}`: true, `{"error":{"message":"m","code":529}}`: true,
		`{"error":{"message":"m","type":"overloaded_error"}}`:                                       true,
		`{"error":{"message":"m","code":"server_overloaded"}}`:                                      true,
		`{"error":{"message":"m","code":"server_is_overloaded"}}`:                                   true,
		`{"error":{"message":"m","type":"ModelOverloadedException"}}`:                               true,
		`{"error":{"message":"m","type":"overloaded_error","code":500}}`:                            true,
		`{"error":{"message":"m","type":"capacity_exceeded","code":498}}`:                           true,
		`{"error":{"message":"That model is currently overloaded with other requests."}}`:           true,
		`{"error":{"message":"Request dropped due to backpressure","code":500}}`:                    true,
		`{"error":{"message":"Slow down","code":"slow_down"}}`:                                      true,
		`{"error":{"message":"overloaded","code":429}}`:                                             false,
		`{"error":{"message":"overloaded","code":400}}`:                                             false,
		`{"error":{"message":"m","code":500}}`:                                                      false,
		`{"error":{"message":"m","type":"server_error"}}`:                                           false,
		`{"error":{"message":"` + strings.Repeat("x", overflowWithin) + ` overloaded","code":500}}`: false,
	} {
		e, ok := ErrorOf([]byte(body))
		if got := e.Overloaded(); !ok || got != want {
			t.Errorf("%s: %v", body, got)
		}
	}
}

func TestRefusalsForContentAreRecognized(t *testing.T) {
	for body, want := range map[string]bool{
		`{"error":{"message":"m","code":"content_filter"}}`:                                                           true,
		`{"error":{"message":"m","type":"content_policy_violation"}}`:                                                 true,
		`{"error":{"message":"m","code":"ResponsibleAIPolicyViolation"}}`:                                             true,
		`{"error":{"message":"m","code":"moderation_blocked","status":500}}`:                                          true,
		`{"code":"DataInspectionFailed","message":"m","status":400}`:                                                  true,
		`{"error":{"message":"Your input was flagged","code":403}}`:                                                   true,
		`{"error":{"message":"m violates our usage policies","type":"permission_error"}}`:                             true,
		`{"error":{"message":"Your input was flagged","code":400}}`:                                                   false,
		`{"error":{"message":"m","code":"content_filter","status":429}}`:                                              false,
		`{"error":{"message":"m","code":"content_filter","status":401}}`:                                              false,
		`{"error":{"message":"no permission","code":403}}`:                                                            false,
		`{"error":{"message":"network policy","code":403}}`:                                                           false,
		`{"error":{"message":"You have insufficient permissions. Missing scopes: api.moderations.write","code":403}}`: false,
		`{"error":{"message":"Missing scopes for the guardrail","code":"missing_scope","status":403}}`:                false,
		`{"error":{"message":"m","code":"moderation_permission_missing","status":403}}`:                               false,
		`{"error":{"message":"Your API key may not use the content filter","code":403}}`:                              false,
		`{"message":"User is not authorized to perform bedrock:ApplyGuardrail","status":403}`:                         false,
		`{"__type":"AccessDeniedException","message":"no access to guardrails","status":403}`:                         false,
		`{"error":{"message":"The safety model is not yours","code":403}}`:                                            false,
		`{"error":{"message":"Rejected by our safety system","code":403}}`:                                            true,
		`{"error":{"message":"Blocked by moderation","code":403}}`:                                                    true,
		`{"error":{"message":"m","code":"invalid_content_type"}}`:                                                     false,
		`{"error":{"message":"m","type":"server_error"}}`:                                                             false,
	} {
		e, ok := ErrorOf([]byte(body))
		if got := e.RefusesContent(); !ok || got != want {
			t.Errorf("%s: %v", body, got)
		}
	}
}

func TestInternalAddressesAreHidden(t *testing.T) {
	const h = hiddenAddress
	for text, want := range map[string]string{
		"see http://10.1.2.3:8000/v1/x?y=1 now": "see " + h + " now", "http://localhost": h,
		"at HTTP://LocalHost:8000.": "at " + h, "https://user:pw@engine/x": h, "http://[::1]:8000/x y": h + " y",
		"grpc+tls://a.svc.cluster.local:1, and http://b.internal/": h + ", and " + h, "(ws://host)": "(" + h + ")",
		"connect 192.168.7.9:8000 failed": "connect " + h + " failed", "127.0.0.1": h, "10.0.0.1.": h + ".",
		"tcp:169.254.1.1": "tcp:" + h, "https://platform.openai.com/docs": "https://platform.openai.com/docs",
		"8.8.8.8": "8.8.8.8", "v1.2.3.4": "v1.2.3.4", "1.2.3": "1.2.3", "": "", "a://": h, "temperature 10.5": "temperature 10.5",
		"http://[" + strings.Repeat(" ", addressMost) + "] x": h + strings.Repeat(" ", addressMost) + "] x", // examines few bytes
		"http://[fe80::1%25eth0]:1/x":                         h, "10.0.0.1.5": "10.0.0.1.5", `{"m":"http:\/\/10.0.0.1\/x"}`: `{"m":"http:\/\/` + h + `\/x"}`,
	} {
		if got := string(HideAddresses([]byte(text))); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestErrorsInsideAPayload are found in an object or a choice around them, and in a message.
func TestErrorsInsideAPayload(t *testing.T) {
	for data, want := range map[string]EngineError{
		`{"data":{"error":{"code":503,"message":"m"}}}`:                                          {Status: 503, Message: "m"},
		`{"result":{"id":1,"error":"m"},"id":2}`:                                                 {Status: 500, Message: "m"},
		`{"x_groq":{"id":"r","error":"over capacity"}}`:                                          {Status: 500, Message: "over capacity"},
		`{"choices":[{"index":0},{"finish_reason":"error","error":{"code":503,"message":"m"}}]}`: {Status: 503, Message: "m"},
		`{"success":false,"message":"m"}`:                                                        {Status: 500, Message: "m"},
		`{"status":"error","message":"m"}`:                                                       {Status: 500, Message: "m"},
		`{"error":"litellm.RateLimitError: m"}`:                                                  {Status: 429, Message: "litellm.RateLimitError: m"},
		`{"error":"Error code: 529 - {'type': 'error'}"}`:                                        {Status: 529, Message: "Error code: 529 - {'type': 'error'}"},
		`{"error":"ValueError: m"}`:                                                              {Status: 500, Message: "ValueError: m"},
		`{"data":{"error":{"message":"m"}},"error":{"message":"n","code":400}}`:                  {Status: 400, Message: "n"},
	} {
		if got, ok := ErrorOf([]byte(data)); !ok || got != want {
			t.Errorf("%s: %+v %v", data, got, ok)
		}
	}
	for _, data := range []string{`{"data":{"error":null}}`, `{"data":{"errors":1}}`, `{"choices":[{"index":0,"error":null}]}`,
		`{"data":[{"error":"m"}]}`, `{"success":true,"message":"m"}`, `{"data":{"data":{"error":"m"}}}`} {
		if got, ok := ErrorOf([]byte(data)); ok {
			t.Errorf("%s: %+v", data, got)
		}
	}
	const inChoice = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"error","error":{"code":503,"message":"m"}}]}`
	ev, err := NewEventReader(strings.NewReader(inChoice+"\n\n"), 0).Next()
	if tracker := NewTracker(Chat); err != nil || !tracker.Observe(ev).Has(MarkError) {
		t.Errorf("an error in a choice is none: %v", err)
	}
}

// TestAChatForAnotherDialectProvesNothing: a finish_reason ends no message and no response.
func TestAChatForAnotherDialectProvesNothing(t *testing.T) {
	for _, d := range []Dialect{Messages, Responses} {
		tracker := NewTracker(d)
		const last = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
		ev, err := NewEventReader(strings.NewReader(last), 0).Next()
		if tracker.Observe(ev); err != nil || tracker.Finished() || tracker.Proven() {
			t.Errorf("%v is complete: %v", d, err)
		}
	}
}
