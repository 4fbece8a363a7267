package intake

import (
	"strings"
	"testing"
)

// TestARouteIsToldFromWhatIsNone: under every prefix.
func TestARouteIsToldFromWhatIsNone(t *testing.T) {
	for _, p := range Prefixes() {
		for _, rt := range Routes() {
			path := p.Path + strings.NewReplacer(":id", "x", "*id", "x").Replace(rt.Path)
			if !isRoute(path) || isRoute(p.Path+"/none"+rt.Path) {
				t.Errorf("%s is told apart from what is no route: %v", path, isRoute(path))
			}
		}
	}
}
