package proxy

import (
	"path"
	"strings"

	"tierway/server/control"
	"tierway/tenants"
)

// passingPool returns the pool whose paths cover a request that matches no route, the
// longest pattern first; nil when none does. Engines clean dot segments and doubled
// slashes and often ignore a slash at the end, so a path that they could read as
// another one is covered by no pattern.
func passingPool(snap *control.Snapshot, urlPath string, c *tenants.Caller) *control.Pool {
	bare := strings.TrimSuffix(urlPath, "/")
	if clean := path.Clean(urlPath); clean != urlPath && (clean != bare || isRoute(bare)) {
		return nil
	}
	var best *control.Pool
	longest := -1
	for _, p := range snap.Pools {
		for _, pattern := range p.Paths {
			if len(pattern) > longest && matchPath(pattern, urlPath) && c.MayPass(p.Name) && p.Admits(c) {
				best, longest = p, len(pattern)
			}
		}
	}
	return best
}

// matchPath tells whether a pattern, exact or with a star at its end, takes a
// path.
func matchPath(pattern, urlPath string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(urlPath, prefix)
	}
	return pattern == urlPath
}

// owns reports whether a stored answer is the caller's: its tenant's alone, and
// within the rights of its key.
func owns(snap *control.Snapshot, c *tenants.Caller, at control.StoredResponse) bool {
	return !at.Contested && at.Tenant == c.Tenant && snap.MayUse(c, at.Pool) && c.MayUseModel(at.Model)
}
