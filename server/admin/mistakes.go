package admin

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	messages "github.com/danielgtaylor/huma/v2/validation"

	"tierway/config"
	"tierway/tenants"
)

// unknownQuery and badTime are how the framework words two mistakes; the second is
// followed by a layout that means something in Go only.
const (
	unknownQuery = "unknown query parameter"
	badTime      = "invalid date/time for format "
)

// mend adds to what a request got wrong how it is right: of a query parameter that the
// operation does not have the value and those that it has, of a time an example. It takes
// out what is repeated of the request, where that is a whole object or may be a secret.
func mend(ctx huma.Context, _ string, v any) (any, error) {
	e, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	for _, d := range e.Errors {
		switch {
		case d.Message == unknownQuery:
			name, at := strings.TrimPrefix(d.Location, "query."), ctx.URL()
			d.Value = queryValue(at.Query()[name])
			d.Message = fmt.Sprintf("%s (%s)", unknownQuery, config.DidYouMean(name, queryOf(ctx.Operation())))
		case strings.HasPrefix(d.Message, badTime), d.Message == messages.MsgExpectedRFC3339DateTime:
			d.Message = timeWanted(d)
		}
		switch d.Value.(type) {
		case string, bool, float64, int, int64:
			if ctx.Operation().OperationID == "bootstrap" {
				d.Value = nil
			}
		default:
			d.Value = nil
		}
	}
	if len(e.Errors) > 0 && strings.HasPrefix(e.Errors[0].Message, unknownQuery) { // they come alone, in the order of a map
		slices.SortFunc(e.Errors, func(a, b *huma.ErrorDetail) int { return strings.Compare(a.Location, b.Location) })
	}
	return e, nil
}

// queryOf names the query parameters of an operation.
func queryOf(op *huma.Operation) (names []string) {
	for _, p := range op.Parameters {
		if p.In == "query" {
			names = append(names, p.Name)
		}
	}
	return names
}

// queryValue repeats what a query has for its sender, unless it may be a key,
// which has no place there.
func queryValue(values []string) any {
	text := strings.Join(values, ", ")
	if strings.Contains(text, tenants.TenantPrefix) {
		return nil
	}
	return text
}

// queryOnce refuses a query parameter that comes more than once: one of its values
// would count and the others be lost.
func (a *Plane) queryOnce(ctx huma.Context, next func(huma.Context)) {
	at := ctx.URL()
	query := at.Query()
	var twice []error
	for _, name := range queryOf(ctx.Operation()) {
		if values := query[name]; len(values) > 1 {
			twice = append(twice, &huma.ErrorDetail{Location: "query." + name, Message: "expected once; for other values ask again", Value: queryValue(values)})
		}
	}
	if len(twice) == 0 {
		next(ctx)
		return
	}
	if err := huma.WriteErr(a.api, ctx, http.StatusUnprocessableEntity, "validation failed", twice...); err != nil {
		a.log.Debug("an admin answer was not taken", "cause", err.Error())
	}
}

// timeWanted says how a time is written.
func timeWanted(d *huma.ErrorDetail) string {
	text := "expected an RFC 3339 time such as 2026-11-21T14:05:00Z"
	value, _ := d.Value.(string)
	if at := strings.LastIndexByte(value, ' '); at >= 0 && strings.HasPrefix(d.Location, "query.") {
		if _, err := time.Parse(time.RFC3339, value[:at]+"+"+value[at+1:]); err == nil {
			text += "; the + of a zone is %2B in a query"
		}
	}
	return text
}
