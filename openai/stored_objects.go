package openai

import (
	"net/http"
	"slices"
	"strings"
)

// storedKinds are the collections of OpenAI's and Anthropic's APIs with objects that an engine
// stores and returns by ID. The engine sees one account, the gateway's, so it cannot separate
// tenants.
var storedKinds = [...]string{
	"assistants", "batches", "containers", "conversations", "evals", "files", "fine_tuning", "skills", "threads",
	"uploads", "vector_stores", "videos",
}

// StoredKind returns the kind of stored objects that a request for a decoded path reads or
// changes, such as "files" for GET /v1/files/file-1, or "". Requests that create a response or a
// chat completion have no kind. Requests for a single response have none either; ResponsePath
// returns its ID.
func StoredKind(method, path string) string {
	segments := strings.Split(path, "/")
	for i, s := range segments {
		s = strings.ToLower(s) // some servers match paths case-insensitively
		if slices.Contains(storedKinds[:], s) {
			return s
		}
		below := i+1 < len(segments) && segments[i+1] != ""
		switch {
		case s == "responses" && !below && method != http.MethodPost:
			return "responses"
		case s == "completions" && i > 0 && strings.EqualFold(segments[i-1], "chat") && (below || method != http.MethodPost):
			return "chat completions"
		}
	}
	return ""
}

// ResponsePath reports whether a decoded path belongs to the Responses API, under any base
// path. id is the segment after `responses`: a stored response, an action such as compact, or
// "" for the collection. below is the path after the ID.
func ResponsePath(path string) (id, below string, ok bool) { return cutCollection(path, "responses") }

// ConversationPath reports whether a decoded path belongs to the Conversations API, under any base
// path. id is the segment after `conversations`, or "" for the collection. below is the path after
// the ID.
func ConversationPath(path string) (id, below string, ok bool) {
	return cutCollection(path, "conversations")
}

// cutCollection cuts a path after the first segment with the name of a collection.
func cutCollection(path, name string) (id, below string, ok bool) {
	for rest := path; ; {
		var segment string
		segment, rest, ok = strings.Cut(rest, "/")
		if strings.EqualFold(segment, name) {
			id, below, _ = strings.Cut(rest, "/")
			return id, below, true
		}
		if !ok {
			return "", "", false
		}
	}
}
