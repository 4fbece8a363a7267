package workers

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"

	"tierway/http1"
)

// Headers are set in everything that is sent to a worker, by name in any case. The values may be secrets: no format
// prints them.
type Headers map[string]string

// Format prints the number of the headers under every verb.
func (h Headers) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, h.String()) }

func (h Headers) String() string { return fmt.Sprintf("%d headers", len(h)) }

// LogValue logs the number of the headers.
func (h Headers) LogValue() slog.Value { return slog.StringValue(h.String()) }

// Over returns the headers of h, and those of a tier or pool that h does not have.
func (h Headers) Over(inherited Headers) Headers {
	if len(inherited) == 0 {
		return maps.Clone(h)
	}
	out := maps.Clone(inherited)
	maps.DeleteFunc(out, func(name, _ string) bool { return h.Has(name) })
	maps.Copy(out, h)
	return out
}

// Has reports whether h has a header, in any case.
func (h Headers) Has(name string) bool {
	for own := range h {
		if strings.EqualFold(own, name) {
			return true
		}
	}
	return false
}

// identity returns a text that differs for different headers.
func (h Headers) identity() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(h)) {
		b.WriteString(name + "\x00" + h[name] + "\x00")
	}
	return b.String()
}

// leastSecret is the length in bytes from which a word of a header is a secret that no answer may repeat. Shorter ones
// are usual words.
const leastSecret = 8

// repeatedIn reports whether a text contains a secret of the headers.
func (h Headers) repeatedIn(text []byte) bool {
	for _, value := range h {
		for word := range strings.FieldsSeq(value) {
			if len(word) >= leastSecret && bytes.Contains(text, []byte(word)) {
				return true
			}
		}
	}
	return false
}

// setter returns a function that sets the headers in a request; nil without headers. A client's header is replaced,
// also if its name differs in underscores, which some servers read as hyphens.
func (h Headers) setter() func(http.Header) {
	if len(h) == 0 {
		return nil
	}
	set := make(http.Header, len(h))
	for name, value := range h {
		set[http.CanonicalHeaderKey(name)] = []string{value}
	}
	return func(to http.Header) {
		for name := range to {
			if strings.Contains(name, "_") && set[http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))] != nil {
				delete(to, name)
			}
		}
		maps.Copy(to, set)
	}
}

// ReservedHeader reports whether the gateway sets a header itself, so that Headers cannot have it. way is where its
// value comes from.
func ReservedHeader(name string) (way string, reserved bool) {
	name = http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-")) // some servers read underscores as hyphens
	switch {
	case name == "Host":
		return "write the host into the url of the worker, from which the gateway takes it", true
	case http1.IsConnectionField(name) || name == "Http2-Settings":
		return "remove it: the gateway sets it for each connection", true
	case name == "Traceparent" || name == "Tracestate":
		return "remove it: the traces of the gateway set it", true
	case name == rankHeader:
		return "write the rank into the url, or set ranks", true
	case name == "X-Vllm-Priority":
		return "remove it: the gateway sends the priority of each request", true
	case name == "X-Request-Id" || name == "Via" || strings.HasPrefix(name, "Accept") ||
		strings.HasPrefix(name, "Content-"):
		return "remove it: the gateway sets it for each request", true
	}
	return "", false
}
