package config

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// inRegions is a tier with workers in us-west, us-east and eu-central.
const inRegions = keys + `tiers: [{name: t, model: m, workers: [{name: a, url: "http://h:1", region: us-west}, ` +
	`{name: b, url: "http://h:2", region: us-east}, {name: c, url: "http://h:3", region: eu-central}]}]` + "\n"

func TestRegionsAreChecked(t *testing.T) {
	const proxies = "trusted_proxies: [10.0.0.1]\n"
	for name, c := range map[string]struct {
		src  string
		want []string
	}{
		"everything": {inRegions + proxies + "region: us-west\nregions: {header: X-Client-Region, order: {us-west: " +
			"[us-east, eu-central], ap-south: [eu-central]}}\n", nil},
		"only the gateway's": {inRegions + "region: us-east\n", nil},
		"no region of a request": {inRegions, []string{
			`2:76: warning: tiers[0].workers[0].region: has no effect: requests have no region (set region of the gateway, or regions.header)`,
		}},
		"a header that anyone could set": {inRegions + "regions: {header: X-Client-Region}\n", []string{
			`3:19: regions.header: "X-Client-Region" never counts, because there are no trusted_proxies (list the proxies that set it in trusted_proxies, or remove the key)`,
		}},
		"no name of a header": {inRegions + proxies + "region: us-west\nregions: {header: 'X Region'}\n", []string{
			`5:19: regions.header: want a header's name of letters, digits and hyphens, got "X Region"`,
		}},
		"regions without workers": {inRegions + "region: us-wset\nregions: {order: {us-wset: [us-esat, us-east, mars, " +
			"us-east, us-wset]}}\n", []string{
			`4:29: regions.order.us-wset[0]: no worker has the region "us-esat" (did you mean us-east?)`,
			`4:47: regions.order.us-wset[2]: no worker has the region "mars" (known: us-west, us-east, eu-central)`,
			`4:53: regions.order.us-wset[3]: "us-east" is already listed at regions.order.us-wset[1] (remove one of them)`,
			`4:62: regions.order.us-wset[4]: a region is the nearest to itself (remove it)`,
		}},
		"a region of the gateway without workers and order": {inRegions + "region: us-wst\n", []string{
			`3:9: warning: region: no worker has the region "us-wst", and regions.order does not list it (did you mean us-west?)`,
		}},
		"an order that never applies": {inRegions + "region: us-west\nregions: {order: {us-east: [us-west]}}\n", []string{
			`4:19: warning: regions.order.us-east: has no effect: it is not the region of the gateway, and regions.header is not set (set region: "us-east" or regions.header, or remove the key)`,
		}},
	} {
		if diff := cmp.Diff(append([]string{}, c.want...), problemsOf(t, c.src, nil)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestOrderOfRegionsIsAChange: the lists are no sets.
func TestOrderOfRegionsIsAChange(t *testing.T) {
	parse := func(order string) *File {
		f, err := Parse("f", []byte(inRegions+"region: us-west\nregions: {order: {us-west: "+order+"}}\n"), nil)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	got := Changes(parse("[us-east, eu-central]"), parse("[eu-central, us-east]"))
	want := []Change{{Path: "regions.order.us-west", Op: "replace", Old: "[us-east, eu-central]",
		New: "[eu-central, us-east]", Effect: "live"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRegionOfARequest(t *testing.T) {
	with := File{Region: "us-west", Regions: Regions{Header: "x-client-region"}}
	without := File{Region: "us-west"}
	for _, c := range []struct {
		f       *File
		header  string
		trusted bool
		want    string
	}{
		{&with, "eu-central", true, "eu-central"},
		{&with, " EU-Central ", true, "eu-central"},
		{&with, "eu-central", false, "us-west"},
		{&with, "", true, "us-west"},
		{&without, "eu-central", true, "us-west"},
	} {
		if got := c.f.RegionOf(http.Header{"X-Client-Region": {c.header}}, func() bool { return c.trusted }); got != c.want {
			t.Errorf("%q, trusted %v: %q, want %q", c.header, c.trusted, got, c.want)
		}
	}
}
