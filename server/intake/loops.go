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

// CheckLoop refuses a request that has passed this gateway before, or too many other
// ones: the URL of a worker leads back to a gateway.
func (it *Intake) CheckLoop(in *Inbound) error {
	passed := gateways(in.HTTP.Header)
	switch {
	case slices.Contains(passed, it.name):
		return &openai.Error{Code: openai.CodeLoopDetected,
			Message: "The request has passed this gateway before: the URL of a worker leads back to it."}
	case len(passed) >= maxGateways:
		return &openai.Error{Code: openai.CodeLoopDetected, Message: "The request has passed " +
			strconv.Itoa(len(passed)) + " gateways; it may pass " + strconv.Itoa(maxGateways) + "."}
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

// Via is the Via header with which a request goes on: the gateways that it has
// passed, to which a worker adds this one. Other proxies speak of the client.
func Via(h http.Header) []string {
	passed := gateways(h)
	for i, name := range passed {
		passed[i] = ViaEntry(name)
	}
	return passed
}

// ViaEntry is a gateway's entry in a Via header.
func ViaEntry(name string) string { return "1.1 " + name }
