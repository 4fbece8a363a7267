package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"tierway/store"
	"tierway/tenants"
)

// failed is the answer to an error of a store: what is the client's to mend with
// its reason, everything else without, which the log has.
func (a *Plane) failed(doing string, err error) error {
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

// away is the answer while the database is away.
func (a *Plane) away(doing string, err error, detail string) error {
	a.log.Warn("an admin request has to wait for the database", "doing", doing, "cause", err.Error())
	return huma.ErrorWithHeaders(huma.Error503ServiceUnavailable(detail), http.Header{"Retry-After": {"5"}}) // a restart takes seconds
}

// tenant returns the tenant of that name.
func (a *Plane) tenant(name string) (tenants.Tenant, error) {
	ts, _ := a.control.Snapshot().Identity.Tenants()
	i := slices.IndexFunc(ts, func(t tenants.Tenant) bool { return t.Name == name })
	if i < 0 {
		return tenants.Tenant{}, notFound("tenant", name)
	}
	return ts[i], nil
}

// notFound is the answer where there is no such thing. A name is data: it is
// quoted.
func notFound(what, name string) error {
	return huma.Error404NotFound(fmt.Sprintf("There is no %s %q.", what, name))
}

// fromConfig is the answer to a change of what config.yaml says.
func fromConfig(what, name string) error {
	return huma.Error409Conflict(fmt.Sprintf("The %s %q stands in config.yaml and is changed there: edit auth.keys or admin.keys and reload.", what, name))
}

// invalid is the answer to a body that is well formed and makes no sense.
func invalid(location, message string, value any) error {
	return huma.Error422UnprocessableEntity("validation failed", &huma.ErrorDetail{Location: location, Message: message, Value: value})
}

// etag is a version as ETag and If-Match carry it.
func etag(version int64) string { return `"v` + strconv.FormatInt(version, 10) + `"` }

// tag is what If-Match asks for.
type tag struct {
	version int64
	any     bool
}

// is tells whether something at a version is what is asked for.
func (t tag) is(version int64) bool { return t.any || t.version == version }

// tagOf reads If-Match, where none asks for nothing.
func tagOf(ifMatch string) (tag, error) {
	text := strings.TrimSpace(ifMatch)
	if text == "" || text == "*" {
		return tag{any: true}, nil
	}
	if number, ok := strings.CutPrefix(strings.Trim(text, `"`), "v"); ok {
		if v, err := strconv.ParseInt(number, 10, 64); err == nil && v >= 0 {
			return tag{version: v}, nil
		}
	}
	return tag{}, huma.Error412PreconditionFailed(fmt.Sprintf("If-Match %s is no ETag of this API, such as %s.", ifMatch, etag(3)))
}
