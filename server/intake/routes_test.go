package intake

import (
	"strings"
	"testing"
)

func TestIsRouteFindsEveryRouteUnderEveryPrefixAndNoOtherPath(t *testing.T) {
	for _, p := range Prefixes() {
		for _, rt := range Routes() {
			path := p.Path + strings.NewReplacer(":id", "x", "*id", "x").Replace(rt.Path)
			if !isRoute(path) || isRoute(p.Path+"/none"+rt.Path) {
				t.Errorf("isRoute is %v for %s and %v for %s", isRoute(path), path, isRoute(p.Path+"/none"+rt.Path),
					p.Path+"/none"+rt.Path)
			}
		}
	}
}
