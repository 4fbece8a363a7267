package openai

import "strings"

// withheldHeaders are response headers of workers that never reach clients: they concern the
// connection, the worker's address or account, or the gateway sets them itself. Pass-through paths
// have their own rule for Content-Encoding, Location and Content-Location.
var withheldHeaders = map[string]bool{
	"Connection": true, "Keep-Alive": true, "Proxy-Connection": true, "Proxy-Authenticate": true, "Te": true,
	"Trailer": true, "Transfer-Encoding": true, "Upgrade": true, "Content-Length": true,
	"Content-Encoding": true, "Location": true, "Content-Location": true,
	"Set-Cookie": true, "Server": true, "Date": true, "Via": true, "Alt-Svc": true, "Strict-Transport-Security": true,
	"Www-Authenticate": true, "X-Request-Id": true, "Request-Id": true, "X-Should-Retry": true,
	"Openai-Organization": true, "Openai-Project": true, "Openai-Processing-Ms": true, "Anthropic-Organization-Id": true,
	"X-Model-Tier": true, "X-Tier-Reason": true, "X-Routed-To": true, "X-Route-Reason": true, "X-Queue-Ms": true, "X-Tierway-Hooks": true,
	"X-Request-Duration": true,
}

// MayRelay reports whether `response_headers` of a pool may list a header. name has canonical form.
func MayRelay(name string) bool {
	return !withheldHeaders[name] && !strings.HasPrefix(name, "Access-Control-")
}
