package server

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/danielgtaylor/huma/v2"
)

// TestQueryErrorsNameTheWayOut: the error has the value, the nearest parameter or all known ones, the
// repeated parameter, or the format of a time. It repeats no key.
func TestQueryErrorsNameTheWayOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		const aTime = "expected an RFC 3339 time such as 2026-11-21T14:05:00Z"
		for _, c := range []struct {
			method, path, body string
			want               []huma.ErrorDetail
		}{
			{"GET", "/admin/decisions?teir=large", "",
				[]huma.ErrorDetail{{Location: "query.teir", Message: "unknown query parameter (did you mean tier?)",
					Value: "large"}}},
			{"GET", "/admin/decisions/stream?wrker=w0&outcom=ok", "", []huma.ErrorDetail{
				{Location: "query.outcom", Message: "unknown query parameter (did you mean outcome?)", Value: "ok"},
				{Location: "query.wrker", Message: "unknown query parameter (did you mean worker?)", Value: "w0"}}},
			{"GET", "/admin/tenants?everything=1", "",
				[]huma.ErrorDetail{{Location: "query.everything",
					Message: "unknown query parameter (known: limit, cursor, q, today)",
					Value:   "1"}}},
			{"GET", "/admin/status?verbose=1", "",
				[]huma.ErrorDetail{{Location: "query.verbose", Message: "unknown query parameter (none is defined)", Value: "1"}}},
			{"GET", "/admin/status?key=tw-adm-0", "",
				[]huma.ErrorDetail{{Location: "query.key", Message: "unknown query parameter (none is defined)"}}},
			{"GET", "/admin/decisions?outcome=refused&outcome=ok&status=503", "",
				[]huma.ErrorDetail{{Location: "query.outcome", Message: "the parameter is repeated: send it once, and other " +
					"values in further requests", Value: "refused, ok"}}},
			{"GET", "/admin/decisions/stream?status=503&status=200", "",
				[]huma.ErrorDetail{{Location: "query.status",
					Message: "the parameter is repeated: send it once, and other values " +
						"in further requests", Value: "503, 200"}}},
			{"POST", "/admin/reload?dry_run=true&dry_run=false", "",
				[]huma.ErrorDetail{{Location: "query.dry_run", Message: "the parameter is repeated: send it once, and other " +
					"values in further requests", Value: "true, false"}}},
			{"GET", "/admin/decisions?since=1h", "", []huma.ErrorDetail{{Location: "query.since", Message: aTime, Value: "1h"}}},
			{"GET", "/admin/decisions?until=2026-11-21T15:00:00+02:00", "",
				[]huma.ErrorDetail{{Location: "query.until", Message: aTime + "; write the + of a zone as %2B in a query",
					Value: "2026-11-21T15:00:00 02:00"}}},
			{"POST", "/admin/route/replay", `{"filter":{"since":"yesterday"}}`,
				[]huma.ErrorDetail{{Location: "body.filter.since", Message: aTime, Value: "yesterday"}}},
		} {
			got := r.callAdmin("ops", c.method, c.path, c.body)
			problem := decode[huma.ErrorModel](t, got)
			if got.status != http.StatusUnprocessableEntity || len(problem.Errors) != len(c.want) {
				t.Errorf("%s %s: %d %s", c.method, c.path, got.status, got.body)
				continue
			}
			for i, d := range problem.Errors {
				if *d != c.want[i] {
					t.Errorf("%s %s: the error is %+v, want %+v", c.method, c.path, *d, c.want[i])
				}
			}
			if strings.Contains(got.body, "tw-adm-") {
				t.Errorf("%s repeats a key: %s", c.path, got.body)
			}
		}
	})
}
