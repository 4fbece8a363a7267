//go:build goexperiment.jsonv2

package openai

import (
	"bytes"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"testing"
)

// FuzzParseAgainstStrictJSON compares with the strictest reader of the standard
// library. Both must agree on what is JSON; both refuse half a surrogate pair.
func FuzzParseAgainstStrictJSON(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, d byte, body []byte) {
		dialect := Dialect(d % byte(Audio+1))
		value := jsontext.Value(body)
		object := len(bytes.TrimLeft(body, " \t\r\n")) > 0 && bytes.TrimLeft(body, " \t\r\n")[0] == '{'
		strict := object && value.IsValid(jsontext.AllowDuplicateNames(true))
		r, err := parse(dialect, body, 1000)
		var refused *RequestError
		if errors.As(err, &refused) && refused.Reason == CodeInvalidJSON && strict {
			t.Fatalf("refused what the strict reader takes: %v", err)
		}
		if err != nil {
			return
		}
		if !strict {
			t.Fatal("took what the strict reader refuses")
		}
		// Without duplicates of any kind, the values must be the same.
		var members map[string]jsontext.Value
		if json.Unmarshal(body, &members) != nil {
			return
		}
		var model string
		if json.Unmarshal(members["model"], &model) == nil && r.Model != model {
			t.Fatalf("model %q, the strict reader: %q", r.Model, model)
		}
		if r.Stream != (string(members["stream"]) == "true") {
			t.Fatalf("stream %v, the strict reader: %s", r.Stream, members["stream"])
		}
	})
}
