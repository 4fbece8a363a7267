package openai

import "testing"

func TestStoredKindOfPaths(t *testing.T) {
	for _, c := range []struct{ method, path, kind string }{
		{"GET", "/v1/files", "files"}, {"POST", "/v1/files", "files"}, {"GET", "/v1/files/", "files"},
		{"GET", "/files/file-1/content", "files"},
		{"GET", "/openai/v1/Files", "files"}, {"DELETE", "/v1/batches/b", "batches"},
		{"GET", "/v1/messages/batches", "batches"},
		{"POST", "/v1/conversations/c/items", "conversations"}, {"GET", "/v1/vector_stores/v/files", "vector_stores"},
		{"GET", "/v1/fine_tuning/jobs", "fine_tuning"}, {"GET", "/v1/videos/v/content", "videos"},
		{"GET", "/v1/responses", "responses"}, {"HEAD", "/v1/responses/", "responses"}, {"POST", "/v1/responses", ""},
		{"GET", "/v1/responses/r", ""}, {"POST", "/v1/responses/compact", ""},
		{"GET", "/v1/chat/completions", "chat completions"}, {"POST", "/v1/chat/completions", ""},
		{"POST", "/v1/chat/completions/", ""},
		{"POST", "/v1/chat/completions/c", "chat completions"},
		{"GET", "/v1/chat/completions/c/messages", "chat completions"},
		{"GET", "/v1/completions", ""}, {"POST", "/v1/completions", ""},
		{"GET", "/v1/models", ""}, {"GET", "/version", ""}, {"POST", "/pooling", ""}, {"GET", "/profiles", ""},
		{"GET", "", ""}, {"GET", "/", ""},
	} {
		if got := StoredKind(c.method, c.path); got != c.kind {
			t.Errorf("%s %s: %q, want %q", c.method, c.path, got, c.kind)
		}
	}
}

func TestResponsePathReadsTheID(t *testing.T) {
	for path, want := range map[string]struct {
		id, below string
		ok        bool
	}{
		"/v1/responses": {"", "", true}, "/v1/responses/": {"", "", true}, "responses": {"", "", true},
		"/v1/responses/r": {"r", "", true}, "/v1/responses/r/": {"r", "", true},
		"/responses/r/input_items": {"r", "input_items", true}, "/openai/v1/Responses/r/x/y": {"r", "x/y", true},
		"/v1/responses/responses": {"responses", "", true},
		"/v1/response/r":          {}, "/v1/my-responses/r": {}, "/": {}, "": {},
	} {
		if id, below, ok := ResponsePath(path); id != want.id || below != want.below || ok != want.ok {
			t.Errorf("%s: %q %q %v, want %+v", path, id, below, ok, want)
		}
	}
}

func TestConversationPathReadsTheID(t *testing.T) {
	for path, want := range map[string]struct {
		id, below string
		ok        bool
	}{
		"/v1/conversations": {"", "", true}, "/v1/conversations/": {"", "", true},
		"/v1/conversations/c": {"c", "", true}, "/openai/v1/Conversations/c/items/i": {"c", "items/i", true},
		"/v1/responses/c": {}, "/v1/my-conversations/c": {}, "": {},
	} {
		if id, below, ok := ConversationPath(path); id != want.id || below != want.below || ok != want.ok {
			t.Errorf("%s: %q %q %v, want %+v", path, id, below, ok, want)
		}
	}
}

// A pass-through body may belong to the Responses API, where the IDs are read, or to another API,
// where the fields may have any type.
func TestPassThroughBodyMayContinueAResponse(t *testing.T) {
	for body, want := range map[string][2]string{
		`{"previous_response_id":"resp_1","conversation":"conv_1"}`:    {"resp_1", "conv_1"},
		`{"previous\u005fresponse_id":"resp_1"}`:                       {"resp_1", ""},
		`{"conversation":{"x":1,"id":"conv_1"}}`:                       {"", "conv_1"},
		`{"previous_response_id":null,"conversation":null}`:            {},
		`{"previous_response_id":7,"conversation":[{"from":"human"}]}`: {},
		`{"conversation":{"id":7}}`:                                    {},
		`{"previous_response_id":{"id":"resp_1"}}`:                     {},
	} {
		r, err := Parse(Other, []byte(body))
		if err != nil || r.PreviousResponseID != want[0] || r.ConversationID != want[1] {
			t.Errorf("%s: %+v, %v", body, r, err)
		}
	}
	for _, body := range []string{
		`{"previous_response_id":"a","previous_response_id":"b"}`, `{"Previous_Response_ID":"a"}`,
		`{"conversation":"a","CONVERSATION":"b"}`,
		`{"conversation":{"id":"a","ID":"b"}}`,
	} {
		if _, err := Parse(Other, []byte(body)); err == nil {
			t.Errorf("%s is ambiguous and accepted", body)
		}
	}
}
