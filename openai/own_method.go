package openai

import (
	"net/http"
	"slices"
	"strings"
)

// ownPosts are the endpoints below ownPrefixes at which the data plane serves POST requests
// itself.
var ownPosts = [...]string{
	"/chat/completions", "/completions", "/responses", "/messages", "/messages/count_tokens", "/embeddings", "/rerank",
	"/v2/rerank", "/score", "/tokenize", "/detokenize", "/moderations", "/audio/transcriptions", "/audio/translations", "/audio/speech",
	"/images/generations", "/images/edits", "/images/variations",
}

// ownPrefixes are the prefixes of the data plane's endpoints.
var ownPrefixes = [...]string{
	"/background/v1", "/background/v1/v1", "/batch/v1", "/batch/v1/v1", "/openai/v1", "/openai", "/v1", "/v1/v1", "",
}

// OwnMethod returns the HTTP method of an exact path that the data plane serves itself, or "". Such
// requests are never passed through to a pool.
func OwnMethod(path string) string {
	if path == "/livez" || path == "/readyz" {
		return http.MethodGet
	}
	for _, prefix := range ownPrefixes {
		below, ok := strings.CutPrefix(path, prefix)
		switch {
		case !ok:
		case slices.Contains(ownPosts[:], below):
			return http.MethodPost
		case below == "/models":
			return http.MethodGet
		}
	}
	return ""
}
