package intake

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestGatewaysAreReadFromVia(t *testing.T) {
	for _, c := range []struct {
		via, want []string
	}{
		{nil, nil},
		{[]string{"1.1 proxy.example", "HTTP/2 fred (nginx)"}, nil},
		{[]string{"1.1 tierway-a"}, []string{"tierway-a"}},
		{[]string{"1.0 fred, 1.1 tierway-a (comment) ,2 tierway-b", "1.1\ttierway-x", " , ,1.1  tierway-c"},
			[]string{"tierway-a", "tierway-b", "tierway-c"}},
		{[]string{"tierway-a", "1.1 not-tierway-a"}, nil},
	} {
		if d := cmp.Diff(c.want, gateways(http.Header{"Via": c.via})); d != "" {
			t.Errorf("%q (-want +got):\n%s", c.via, d)
		}
	}
}
