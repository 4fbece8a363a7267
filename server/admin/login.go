package admin

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"tierway/config"
	"tierway/store"
	"tierway/tenants"
)

const (
	// sessionCookie is the beginning of the name of the session's cookie.
	sessionCookie = "tierway_session_"
	// backgroundHeader marks a request that a page sends by itself. It does not keep a session alive.
	backgroundHeader = "X-Tierway-Background"
)

// cookieName returns the name of the session's cookie, and whether the gateway's own TLS protects it. The name ends
// with the port, because a browser sends a cookie to all ports of a host. With TLS it begins with __Host-: a browser
// then accepts the cookie from this host over TLS only.
func cookieName(f *config.File) (name string, tls bool) {
	name = sessionCookie + f.Admin.Listen[strings.LastIndex(f.Admin.Listen, ":")+1:]
	if f.Admin.TLS.On() || f.SharedPlanes() && f.TLS.On() {
		return "__Host-" + name, true
	}
	return name, false
}

// cookie returns the session's cookie with an id. An empty id removes the cookie. proto is the header
// X-Forwarded-Proto of a proxy that terminates TLS.
func (a *gateway) cookie(id, proto string) http.Cookie {
	name, tls := cookieName(a.control.Snapshot().File)
	c := http.Cookie{Name: name, Value: id, Path: "/", HttpOnly: true, Secure: tls || proto == "https",
		SameSite: http.SameSiteStrictMode}
	if id == "" {
		c.MaxAge = -1
	}
	return c
}

// sessionID returns the id in the session's cookie, or "".
func sessionID(r *http.Request, f *config.File) string {
	name, _ := cookieName(f)
	c, err := r.Cookie(name)
	if err != nil {
		return ""
	}
	return c.Value
}

// Forwarded has the headers of a proxy.
type Forwarded struct {
	Proto string `header:"X-Forwarded-Proto" doc:"https: a proxy in front terminates TLS, and the cookie is sent over TLS only."`
}

type loginRequest struct {
	Key  string `json:"key,omitempty" maxLength:"200" doc:"An admin key."`
	Code string `json:"code,omitempty" maxLength:"200" doc:"The code of a login link, which works once. Send either key or code."`
}

// SessionView is a login.
type SessionView struct {
	Name      string     `json:"name"`
	Role      string     `json:"role" enum:"admin,viewer"`
	ExpiresAt *time.Time `json:"expires_at,omitempty" doc:"End of the session without further requests. Absent: the request was sent with a key."`
}

type sessionAnswer struct {
	SetCookie http.Cookie `header:"Set-Cookie"`
	Body      SessionView
}

type loginAPI struct {
	*gateway
	guard *guard
}

func (a *loginAPI) createSession(ctx context.Context, in *struct {
	Forwarded
	Body loginRequest
}) (*sessionAnswer, error) {
	if (in.Body.Key == "") == (in.Body.Code == "") {
		return nil, invalid("body", "send either key or code", nil)
	}
	now, actor := time.Now(), actorOf(ctx)
	admin, known := a.authenticateLogin(in.Body, now)
	if !known {
		return nil, a.rejectLogin(ctx, in.Body.Key, now)
	}
	if o, _ := ctx.Value(operatorKey{}).(operator); o.sessionID != "" {
		a.guard.sessions.endSession(o.sessionID) // the browser forgets its cookie
	}
	id, opened, err := a.guard.sessions.openSession(admin.Digest, now)
	if err != nil {
		return nil, a.failed("opening a session", err)
	}
	actor.Name, actor.Role, actor.Via = admin.Name, admin.Role, "ui"
	a.guard.audit(ctx, actor, "session.create")
	return &sessionAnswer{SetCookie: a.cookie(id, in.Proto), Body: viewOf(admin, &opened)}, nil
}

func (a *loginAPI) authenticateLogin(in loginRequest, now time.Time) (store.Admin, bool) {
	identity := a.control.Snapshot().Identity
	if in.Key != "" {
		return identity.AdminOf(in.Key, now)
	}
	digest, ok := a.guard.sessions.takeCode(in.Code, now)
	if !ok {
		return store.Admin{}, false
	}
	return identity.AdminWith(digest, now)
}

// rejectLogin logs a rejected login and returns its answer. key is empty for a code.
func (a *loginAPI) rejectLogin(ctx context.Context, key string, now time.Time) error {
	actor, detail := actorOf(ctx), "This admin key is unknown, expired or deleted."
	cause := "an unknown key"
	if key == "" {
		cause, detail = "an unknown login code", "This login link was used already or has expired. Log in with an admin key."
	} else if caller, _ := a.control.Snapshot().Identity.Directory.Authenticate(key, now); caller != nil {
		cause, detail = "a tenant's key", "This is a tenant's key. Log in with an admin key."
		actor.Name = "tenant:" + caller.Tenant
	}
	a.guard.counts.AuthFailures.Inc()
	a.guard.logOncePerSecond(ctx, actor, "admin.refused", "POST /admin/session", cause)
	if tooMany, wait := a.control.AuthFailures.Add(actor.IP, now); tooMany {
		return huma.ErrorWithHeaders(huma.Error429TooManyRequests("Too many invalid keys came from this address. Try again "+
			"after the time in Retry-After."), http.Header{"Retry-After": {strconv.Itoa(int(wait/time.Second) + 1)}})
	}
	return huma.Error401Unauthorized(detail)
}

func (a *loginAPI) getSession(ctx context.Context, _ *struct{}) (*reply[SessionView], error) {
	o, _ := ctx.Value(operatorKey{}).(operator)
	return &reply[SessionView]{Body: viewOf(o.Admin, o.session)}, nil
}

func (a *loginAPI) deleteSession(ctx context.Context, in *Forwarded) (*struct {
	SetCookie http.Cookie `header:"Set-Cookie"`
}, error) {
	o, _ := ctx.Value(operatorKey{}).(operator)
	if o.sessionID != "" {
		a.guard.sessions.endSession(o.sessionID)
		a.guard.audit(ctx, o.actor, "session.delete")
	}
	return &struct {
		SetCookie http.Cookie `header:"Set-Cookie"`
	}{a.cookie("", in.Proto)}, nil
}

func viewOf(admin store.Admin, s *session) SessionView {
	v := SessionView{Name: admin.Name, Role: admin.Role}
	if s != nil {
		v.ExpiresAt = optional(s.expiry())
	}
	return v
}

// LoginCode returns a code that opens one session of the admin with a key, within an hour. The key must be in
// the configuration in force.
func (a *Plane) LoginCode(key string) (string, error) {
	return a.guard.sessions.newCode(tenants.Digest(key), time.Now())
}
