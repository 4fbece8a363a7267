package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	messages "github.com/danielgtaylor/huma/v2/validation"

	"tierway/config"
	"tierway/store"
	"tierway/tenants"
)

// failed is the answer to an error of a store: what is the client's to mend with
// its reason, everything else without, which the log has.
func (a *gateway) failed(doing string, err error) error {
	var answered huma.StatusError
	switch {
	case errors.As(err, &answered):
		return err // huma finds it, and its headers, within
	case errors.Is(err, store.ErrNotFound):
		return huma.Error404NotFound("There is none of that name.")
	case errors.Is(err, store.ErrExists):
		return huma.Error409Conflict("There is one of that name already.")
	case errors.Is(err, store.ErrConflict):
		return huma.Error412PreconditionFailed("It was changed meanwhile. Read it again and repeat the change with its new ETag.")
	case errors.Is(err, store.ErrLastAdmin):
		return huma.Error409Conflict("It is the last admin key with the role admin. Make another first.")
	case errors.Is(err, store.ErrNewer):
		return a.away(doing, err, "The database's schema is newer than this program, which changes nothing in it. Update this gateway.")
	case errors.Is(err, context.Canceled):
		return huma.Error503ServiceUnavailable("The request was given up before it was done.") // nobody reads this
	case store.Unreachable(err) || errors.Is(err, context.DeadlineExceeded):
		return a.away(doing, err, "The database cannot be reached right now. Nothing was changed.")
	case store.Unwritable(err):
		return a.away(doing, err, "The database takes no writes right now, as with a full disk. Nothing was changed.")
	}
	a.log.Error("an admin request failed", "doing", doing, "cause", err.Error())
	return huma.Error500InternalServerError("Something went wrong while " + doing + "; the gateway's log has the cause.")
}

func (a *gateway) away(doing string, err error, detail string) error {
	a.log.Warn("an admin request has to wait for the database", "doing", doing, "cause", err.Error())
	return huma.ErrorWithHeaders(huma.Error503ServiceUnavailable(detail), http.Header{"Retry-After": {"5"}}) // a restart takes seconds
}

func (a *gateway) tenant(name string) (tenants.Tenant, error) {
	ts, _ := a.control.Snapshot().Identity.Tenants()
	return find(ts, "tenant", name, func(t tenants.Tenant) bool { return t.Name == name })
}

// find returns the first of all that is what is looked for.
func find[T any](all []T, what, name string, is func(T) bool) (found T, err error) {
	if i := slices.IndexFunc(all, is); i >= 0 {
		return all[i], nil
	}
	return found, notFound(what, name)
}

// notFound is the answer where there is no such thing. A name is data: it is
// quoted.
func notFound(what, name string) error {
	return huma.Error404NotFound(fmt.Sprintf("There is no %s %q.", what, name))
}

func fromConfig(what, name string) error {
	return huma.Error409Conflict(fmt.Sprintf("The %s %q stands in config.yaml and is changed there: edit auth.keys or admin.keys and reload.", what, name))
}

// invalid is the answer to a body that is well formed and makes no sense.
func invalid(location, message string, value any) error {
	return huma.Error422UnprocessableEntity("validation failed", &huma.ErrorDetail{Location: location, Message: message, Value: value})
}

func etag(version int64) string { return `"v` + strconv.FormatInt(version, 10) + `"` }

// tag is the version that If-Match asks for, or anyVersion.
type tag int64

const anyVersion tag = -1

func (t tag) is(version int64) bool { return t == anyVersion || t == tag(version) }

// tagOf reads If-Match, where none asks for nothing.
func tagOf(ifMatch string) (tag, error) {
	text := strings.TrimSpace(ifMatch)
	if text == "" || text == "*" {
		return anyVersion, nil
	}
	if number, ok := strings.CutPrefix(strings.Trim(text, `"`), "v"); ok {
		if v, err := strconv.ParseInt(number, 10, 64); err == nil && v >= 0 {
			return tag(v), nil
		}
	}
	return 0, huma.Error412PreconditionFailed(fmt.Sprintf("If-Match %s is no ETag of this API, such as %s.", ifMatch, etag(3)))
}

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
