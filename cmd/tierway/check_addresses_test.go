package main

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"tierway/config"
)

// TestCheckWarnsOfHostsWithSeveralServers once for each, and of no other host.
func TestCheckWarnsOfHostsWithSeveralServers(t *testing.T) {
	f, err := config.Parse("f", []byte("auth: { required: false }\ntiers: [ { name: small, model: m, workers: [\n"+
		"{ name: a, url: \"http://many:1\" }, { name: b, url: \"http://one:1\" }, { name: c, url: \"https://gone\" },\n"+
		"{ name: d, url: \"http://10.0.0.1:1\" }, { name: e, url: \"unix:///run/e\" }, { name: g, url: \"http://both:1\" },\n"+
		"{ name: h, url: \"http://many:2\" } ] } ]\n"),
		nil)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]string{"many": "10.0.0.1 10.0.0.2", "one": "10.0.0.3", "10.0.0.1": "10.0.0.1",
		"both": "::1 127.0.0.1"}
	var out bytes.Buffer
	warnOfAddresses(t.Context(), &out, f, func(_ context.Context, _, host string) (all []netip.Addr, err error) {
		for _, a := range strings.Fields(known[host]) {
			all = append(all, netip.MustParseAddr(a))
		}
		if len(all) == 0 {
			err = errors.New("no such host")
		}
		return all, err
	})
	const want = "host many of workers a, h has 2 addresses"
	if got := out.String(); !strings.Contains(got, want) || strings.Count(got, "\n") != 1 {
		t.Errorf("got %q", got)
	}
}
