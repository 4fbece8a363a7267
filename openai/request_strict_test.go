//go:build goexperiment.jsonv2

package openai

import (
	"bytes"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"testing"
)

// FuzzParseAgainstStrictJSON compares with the strictest reader of the standard library. Both must
// agree on validity; both reject an unpaired surrogate.
func FuzzParseAgainstStrictJSON(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, d byte, body []byte) {
		dialect := Dialect(d % byte(Audio+1))
		value := jsontext.Value(body)
		object := len(bytes.TrimLeft(body, " \t\r\n")) > 0 && bytes.TrimLeft(body, " \t\r\n")[0] == '{'
		strict := object && value.IsValid(jsontext.AllowDuplicateNames(true))
		r, err := parseFor(dialect, body, "", 1000)
		var rejected *RequestError
		if errors.As(err, &rejected) && rejected.Reason == CodeInvalidJSON && strict {
			t.Fatalf("rejected a body that the strict reader accepts: %v", err)
		}
		if err != nil {
			return
		}
		if !strict {
			t.Fatal("accepted a body that the strict reader rejects")
		}
		// Without duplicates, the values must be equal.
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
