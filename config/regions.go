package config

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// Regions configures which regions of workers are near.
type Regions struct {
	Header string              `yaml:"header" form:"keyheader" doc:"Request header with the region of the client, such as X-Client-Region. It counts only in requests from 'trusted_proxies'. Without it, or if its region is unknown, 'region' applies. Empty: no header."`
	Order  map[string][]string `yaml:"order" form:"name" absent:"by measured latency" doc:"Other regions for the requests of a region, the nearest first. Regions that are not listed follow, by the round-trip time of their health checks."`
}

// checkRegions checks the region of the gateway, and the regions that the section regions names.
func (d *decoder) checkRegions(f *File) {
	var known []string // of workers, in the order of the file
	first := ""
	for _, s := range f.sections() {
		for i, w := range s.Workers {
			if w.Region != "" && !slices.Contains(known, w.Region) {
				known = append(known, w.Region)
			}
			if w.Region != "" && first == "" {
				first = fmt.Sprintf("%s.workers[%d].region", s.path, i)
			}
		}
	}
	for _, from := range slices.Sorted(maps.Keys(f.Regions.Order)) {
		d.checkRegionOrder(f, from, known)
	}
	header := f.Regions.Header
	switch {
	case header != "" && len(f.Proxies) == 0:
		d.report("regions.header", d.shown("regions.header", header)+" never counts, because there are no trusted_proxies",
			"list the proxies that set it in trusted_proxies, or remove the key")
	case first != "" && header == "" && f.Region == "":
		d.warn(first, "has no effect: requests have no region", "set region of the gateway, or regions.header")
	}
	if _, listed := f.Regions.Order[f.Region]; f.Region != "" && !listed && !slices.Contains(known, f.Region) {
		d.warn("region", "no worker has the region "+d.shown("region", f.Region)+", and regions.order does not list it",
			DidYouMean(f.Region, known))
	}
}

func (d *decoder) checkRegionOrder(f *File, from string, known []string) {
	path, seen := join("regions.order", from), map[string]string{}
	if f.Regions.Header == "" && from != f.Region {
		d.warnAt(path, d.places[path].key(),
			"has no effect: it is not the region of the gateway, and regions.header is not set",
			"set region: "+quote(from)+" or regions.header, or remove the key")
	}
	for i, to := range f.Regions.Order[from] {
		at := fmt.Sprintf("%s[%d]", path, i)
		switch {
		case seen[to] != "":
			d.report(at, d.shown(at, to)+" is already listed at "+seen[to], "remove one of them")
		case to == from:
			d.report(at, "a region is the nearest to itself", "remove it")
		case !slices.Contains(known, to):
			d.report(at, "no worker has the region "+d.shown(at, to), DidYouMean(to, known))
		}
		seen[to] = at
	}
}

// RegionOf returns the region of a request: the one that its header names, in lower case, else that of the
// gateway. trusted reports whether the peer of the request may set the header; it is called only if the
// header is set.
func (f *File) RegionOf(h http.Header, trusted func() bool) string {
	if f.Regions.Header == "" {
		return f.Region
	}
	if named := h.Get(f.Regions.Header); named != "" && trusted() {
		return strings.ToLower(strings.TrimSpace(named))
	}
	return f.Region
}
