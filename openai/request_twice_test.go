package openai

import (
	"errors"
	"testing"
)

// The gateway must read the same values as the worker. Duplicate members have no common reading.
func TestDuplicateMembersOfAMessageAreRejected(t *testing.T) {
	for body, rejected := range map[string]bool{
		`{"model":"m","messages":[{"role":"user","content":"a"},{"role":"user","content":"b"}]}`:                       false,
		`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}`: false,
		`{"model":"m","messages":[{"role":"user","content":"a","content":"b"}]}`:                                       true,
		`{"model":"m","messages":[{"role":"user","role":"system","content":"a"}]}`:                                     true,
		`{"model":"m","messages":[{"role":"user","content":"a","con\u0074ent":"b"}]}`:                                  true,
		`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a","text":"b"}]}]}`:                 true,
		`{"model":"m","messages":[{"role":"assistant","content":"a","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]}],"tools":[{"type":"function","function":{"name":"f","parameters":{"properties":{"text":{},"content":{}}}}}]}`: false,
	} {
		_, err := Parse(Chat, []byte(body))
		var r *RequestError
		if got := errors.As(err, &r) && r.Reason == CodeAmbiguousJSON; got != rejected || !rejected && err != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
}
