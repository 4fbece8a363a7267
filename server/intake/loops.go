package intake

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"tierway/openai"
)

const (
	// GatewayName begins the name of each gateway in a Via header (RFC 9110, section
	// 7.6.3).
	GatewayName = "tierway-"
	// maxGateways bounds the gateways on a request's way. Three are common (at the edge, in a
	// region, beside the engines); five leave room.
	maxGateways = 5
)

// CheckLoop returns an error if a request has already passed this gateway, or too many other gateways.
// In both cases the URL of a worker leads to a gateway.
func (it *Intake) CheckLoop(in *Inbound) error {
	passed := gateways(in.HTTP.Header)
	switch {
	case slices.Contains(passed, it.name):
		return &openai.Error{Code: openai.CodeLoopDetected,
			Message: "The request has already passed this gateway: the URL of a worker leads back to it. Correct that URL."}
	case len(passed) >= maxGateways:
		return &openai.Error{Code: openai.CodeLoopDetected, Message: "The request has passed " +
			strconv.Itoa(len(passed)) + " gateways; the maximum is " + strconv.Itoa(maxGateways) +
			". Check the URLs of the workers."}
	}
	return nil
}

// gateways returns the names of the gateways that a request has passed, nil for none.
func gateways(h http.Header) (names []string) {
	for _, line := range h["Via"] {
		for entry := range strings.SplitSeq(line, ",") {
			_, by, _ := strings.Cut(strings.TrimSpace(entry), " ")
			name, _, _ := strings.Cut(strings.TrimSpace(by), " ")
			if strings.HasPrefix(name, GatewayName) {
				names = append(names, name)
			}
		}
	}
	return names
}

// Via returns the Via header for the worker: the gateways that the request has passed. The client of
// the worker adds this gateway. Entries of other proxies describe the client and are omitted.
func Via(h http.Header) []string {
	passed := gateways(h)
	for i, name := range passed {
		passed[i] = ViaEntry(name)
	}
	return passed
}

// ViaEntry returns the entry of a gateway in a Via header.
func ViaEntry(name string) string { return "1.1 " + name }
