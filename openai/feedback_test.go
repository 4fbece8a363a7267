package openai

import (
	"errors"
	"strings"
	"testing"
)

func TestFeedbackIsParsedStrictly(t *testing.T) {
	for body, want := range map[string]Feedback{
		`{"id":"r1","ok":true}`:                               {"r1", true, 1},
		` {"weight": 2.5e-1, "ok" : false, "id":"\u0061-b"} `: {"a-b", false, 0.25},
		`{"id":"r1","ok":true,"weight":1}`:                    {"r1", true, 1},
	} {
		if got, err := ParseFeedback([]byte(body)); err != nil || *got != want {
			t.Errorf("%s: %+v, %v", body, got, err)
		}
	}
	for _, c := range []struct {
		body, param string
		code        Code
		want        string
	}{
		{``, "", CodeInvalidJSON, "it is empty"},
		{`[]`, "", CodeInvalidJSON, "expected an object"},
		{`{"id":"r1","ok":true`, "", CodeInvalidJSON, "unexpected end"},
		{`{"id":"r1","ok":true} x`, "", CodeInvalidJSON, "text after the object"},
		{`{"ok":true}`, "id", CodeMissingField, "the field id is missing"},
		{`{"id":"r1"}`, "ok", CodeMissingField, "the field ok is missing"},
		{`{"id":1,"ok":true}`, "id", CodeInvalidValue, "id is not a string"},
		{`{"id":null,"ok":true}`, "id", CodeInvalidValue, "id is not a string"},
		{`{"id":"r1","ok":1}`, "ok", CodeInvalidValue, "ok is not a boolean"},
		{`{"id":"r1","ok":"true"}`, "ok", CodeInvalidValue, "ok is not a boolean"},
		{`{"id":"r1","ok":null}`, "ok", CodeInvalidValue, "ok is not a boolean"},
		{`{"id":"r1","ok":true,"weight":0}`, "weight", CodeInvalidValue, "weight is not a number above 0, at most 1: send"},
		{`{"id":"r1","ok":true,"weight":-1}`, "weight", CodeInvalidValue, "weight is not"},
		{`{"id":"r1","ok":true,"weight":1.01}`, "weight", CodeInvalidValue, "weight is not"},
		{`{"id":"r1","ok":true,"weight":1e999}`, "weight", CodeInvalidValue, "weight is not"},
		{`{"id":"r1","ok":true,"weight":"1"}`, "weight", CodeInvalidValue, "weight is not"},
		{`{"id":"r1","ok":true,"tier":"small"}`, "tier", CodeInvalidValue, "unknown field `tier`: the fields are id, ok"},
		{`{"id":"r1","ok":true,"ok":false}`, "ok", CodeAmbiguousJSON, "the field `ok` is given twice: send it once"},
		{`{"id":"r1","ok":true,"x":[[[[[]]]]]}`, "x", CodeInvalidValue, "unknown field"},
	} {
		_, err := ParseFeedback([]byte(c.body))
		refused, ok := errors.AsType[*RequestError](err)
		if !ok || refused.Reason != c.code || refused.Param != c.param || !strings.Contains(refused.Message, c.want) {
			t.Errorf("%s: %v, param %q", c.body, err, refused.Param)
		}
	}
}

// FuzzFeedback verifies that no body makes the parser panic, and that each accepted one is in its bounds.
func FuzzFeedback(f *testing.F) {
	f.Add([]byte(`{"id":"r1","ok":true,"weight":0.5}`))
	f.Add([]byte(`{"id":"\ud83d","ok":false}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := ParseFeedback(body)
		if _, refused := errors.AsType[*RequestError](err); err != nil && !refused {
			t.Errorf("%v is no error for the client", err)
		}
		if err == nil && !(got.Weight > 0 && got.Weight <= MaxFeedbackWeight) {
			t.Errorf("%+v", got)
		}
	})
}
