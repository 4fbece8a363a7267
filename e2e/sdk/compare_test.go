package sdk_test

import (
	"net/http"
	"strings"
	"testing"
)

func sent(target, kind, body string) recorded {
	return recorded{http.MethodPost, target, http.Header{"Content-Type": {kind}}, []byte(body)}
}

// TestOneByteIsADifference verifies the comparison.
func TestOneByteIsADifference(t *testing.T) {
	const chat, other = "/v1/chat/completions", "/v1/fine_tuning/jobs"
	form := func(boundary, model string) recorded {
		return sent("/v1/audio/transcriptions", "multipart/form-data; boundary="+boundary,
			strings.ReplaceAll("--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nmodel\r\n"+
				"--B\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n"+model+"\r\n--B--\r\n", "B", boundary))
	}
	withKey := sent(other, "application/json", `{}`)
	withKey.header.Set("Authorization", "Bearer key")
	for _, c := range []struct {
		name           string
		direct, behind recorded
		equal          bool
	}{
		{"the model is renamed", sent(chat, "application/json", `{"a": {"model":"m"}, "model": "m" }`),
			sent(chat, "application/json", `{"a": {"model":"m"}, "model": "recorded-model" }`), true},
		{"a nested model is renamed", sent(chat, "application/json", `{"a":{"model":"m"},"model":"m"}`),
			sent(chat, "application/json", `{"a":{"model":"recorded-model"},"model":"recorded-model"}`), false},
		{"the model is not renamed", sent(chat, "application/json", `{"model":"m"}`),
			sent(chat, "application/json", `{"model":"m"}`), false},
		{"a space is lost", sent(chat, "application/json", `{"model":"m", "n":1}`),
			sent(chat, "application/json", `{"model":"recorded-model","n":1}`), false},
		{"a path is passed through", sent(other, "application/json", `{"model":"m"}`),
			sent(other, "application/json", `{"model":"m"}`), true},
		{"a model is renamed in what is passed through", sent(other, "application/json", `{"model":"m"}`),
			sent(other, "application/json", `{"model":"recorded-model"}`), false},
		{"the query is lost", sent(other+"?a=1", "application/json", `{}`), sent(other, "application/json", `{}`), false},
		{"the type is another", sent(other, "application/json", `{}`), sent(other, "application/json; charset=utf-8", `{}`),
			false},
		{"the key is forwarded", sent(other, "application/json", `{}`), withKey, false},
		{"a form's boundary is another", form("one", "m"), form("two", "recorded-model"), true},
		{"a form's model is not renamed", form("one", "m"), form("two", "m"), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, complaints := compare([]recorded{c.direct}, []recorded{c.behind})
			if (len(complaints) == 0) != c.equal {
				t.Errorf("equal should be %v; the complaints are %q", c.equal, complaints)
			}
		})
	}
	if _, _, complaints := compare([]recorded{withKey, withKey}, []recorded{sent(other, "application/json", `{}`)}); len(
		complaints) != 1 {
		t.Errorf("a request that was forwarded once of twice gives %q", complaints)
	}
}
