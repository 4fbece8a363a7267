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

// failed returns the answer to an error of a store. If the client can act on the error, the answer has
// the reason; otherwise only the log has it. doing describes the operation, such as "creating a key".
func (a *gateway) failed(doing string, err error) error {
	var statusErr huma.StatusError
	switch {
	case errors.As(err, &statusErr):
		return err // huma finds it, and its headers, within
	case errors.Is(err, store.ErrNotFound):
		return huma.Error404NotFound("The object does not exist.")
	case errors.Is(err, store.ErrExists):
		return huma.Error409Conflict("An object of this name already exists. Choose another name.")
	case errors.Is(err, store.ErrConflict):
		return huma.Error412PreconditionFailed("The object changed since it was read. Read it again and repeat the change " +
			"with its new ETag.")
	case errors.Is(err, store.ErrLastAdmin):
		return huma.Error409Conflict("This is the last admin key with the role admin. Create another one first.")
	case errors.Is(err, store.ErrNewer):
		return a.unavailable(doing, err,
			"The schema of the database is newer than this gateway, which therefore does not write to it. Update the gateway.")
	case errors.Is(err, context.Canceled):
		return huma.Error503ServiceUnavailable("The request was canceled before it was complete.") // the client has left
	case store.Unreachable(err) || errors.Is(err, context.DeadlineExceeded):
		return a.unavailable(doing, err, "The database is unavailable. Nothing was changed. Try again later.")
	case store.Unwritable(err):
		return a.unavailable(doing, err,
			"The database rejects writes, for example because its disk is full. Nothing was changed.")
	}
	a.log.Error("an admin request failed", "doing", doing, "cause", err.Error())
	return huma.Error500InternalServerError("The gateway failed while " + doing + ". Its log has the cause.")
}

// unavailable returns the answer to a request that needs the database while it cannot be used.
func (a *gateway) unavailable(doing string, err error, detail string) error {
	a.log.Warn("an admin request failed: the database is unavailable", "doing", doing, "cause", err.Error())
	// 5 s: a restart of the database takes seconds
	return huma.ErrorWithHeaders(huma.Error503ServiceUnavailable(detail), http.Header{"Retry-After": {"5"}})
}

// tenant returns a tenant, also if another gateway has just created it.
func (a *gateway) tenant(ctx context.Context, name string) (tenants.Tenant, error) {
	return upToDate(ctx, a, func() (tenants.Tenant, error) {
		t, known := a.control.Snapshot().Identity.Directory.Tenant(name)
		if !known {
			return t, notFound("tenant", name)
		}
		return t, nil
	})
}

// upToDate returns what read returns. After an error it reads the changes of the database and calls read again: another
// gateway may have made the change that is missing here.
func upToDate[T any](ctx context.Context, a *gateway, read func() (T, error)) (T, error) {
	found, err := read()
	if err == nil || a.control.Stores.SQL == nil {
		return found, err
	}
	if err := a.control.Refresh(ctx); err != nil {
		return found, a.failed("reading the changes of other gateways", err)
	}
	return read()
}

// notFound returns the answer for an object that does not exist. name comes from the client and is
// quoted.
func notFound(what, name string) error {
	return huma.Error404NotFound(fmt.Sprintf("There is no %s %q.", what, name))
}

// fromConfig returns the answer to a change of an object that the configuration defines. It does not
// name config.yaml: a gateway that was started with flags has no file, and a demo's has another name.
func fromConfig(what, name string) error {
	return huma.Error409Conflict(fmt.Sprintf("The %s %q is defined in the gateway's configuration, not in its database: "+
		"only a change of auth.keys or admin.keys in a configuration file, and a reload, changes it.", what, name))
}

// invalid returns the answer to a well-formed request with an invalid value at location.
func invalid(location, message string, value any) error {
	return huma.Error422UnprocessableEntity("validation failed",
		&huma.ErrorDetail{Location: location, Message: message, Value: value})
}

func etag(version int64) string { return `"v` + strconv.FormatInt(version, 10) + `"` }

// tag is the version that If-Match requires, or anyVersion.
type tag int64

const anyVersion tag = -1

func (t tag) matches(version int64) bool { return t == anyVersion || t == tag(version) }

// tagOf parses an If-Match header. An empty header and * mean anyVersion.
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
	return 0,
		huma.Error412PreconditionFailed(fmt.Sprintf("If-Match %s is not an ETag of this API. Send an ETag such as %s.",
			ifMatch, etag(3)))
}

// unknownQuery and badTime are the framework's messages for two mistakes. A time layout in Go's own
// notation follows badTime.
const (
	unknownQuery = "unknown query parameter"
	badTime      = "invalid date/time for format "
)

// improveError adds the way out to the framework's error messages: for an unknown query parameter
// its value and the valid names, for a time an example. It removes echoed values that are whole
// objects or may be secrets.
func improveError(ctx huma.Context, _ string, v any) (any, error) {
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
	// such errors come without others, in the order of a map
	if len(e.Errors) > 0 && strings.HasPrefix(e.Errors[0].Message, unknownQuery) {
		slices.SortFunc(e.Errors, func(a, b *huma.ErrorDetail) int { return strings.Compare(a.Location, b.Location) })
	}
	return e, nil
}

func queryOf(op *huma.Operation) (names []string) {
	for _, p := range op.Parameters {
		if p.In == "query" {
			names = append(names, p.Name)
		}
	}
	return names
}

// queryValue returns the values of a query parameter for an error message. It returns nil if one may
// be a key, because messages must not repeat secrets.
func queryValue(values []string) any {
	text := strings.Join(values, ", ")
	if strings.Contains(text, tenants.TenantPrefix) {
		return nil
	}
	return text
}

// queryOnce rejects a request with a repeated query parameter: one value would apply and the others
// would be ignored.
func (a *Plane) queryOnce(ctx huma.Context, next func(huma.Context)) {
	at := ctx.URL()
	query := at.Query()
	var twice []error
	for _, name := range queryOf(ctx.Operation()) {
		if values := query[name]; len(values) > 1 {
			twice = append(twice,
				&huma.ErrorDetail{Location: "query." + name, Message: "the parameter is repeated: send it once, and other values " +
					"in further requests", Value: queryValue(values)})
		}
	}
	if len(twice) == 0 {
		next(ctx)
		return
	}
	if err := huma.WriteErr(a.api, ctx, http.StatusUnprocessableEntity, "validation failed", twice...); err != nil {
		a.log.Debug("writing an admin answer failed", "cause", err.Error())
	}
}

func timeWanted(d *huma.ErrorDetail) string {
	text := "expected an RFC 3339 time such as 2026-11-21T14:05:00Z"
	value, _ := d.Value.(string)
	if at := strings.LastIndexByte(value, ' '); at >= 0 && strings.HasPrefix(d.Location, "query.") {
		if _, err := time.Parse(time.RFC3339, value[:at]+"+"+value[at+1:]); err == nil {
			text += "; write the + of a zone as %2B in a query"
		}
	}
	return text
}
