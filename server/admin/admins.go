package admin

import (
	"context"
	"crypto/rand"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"tierway/store"
	"tierway/tenants"
)

type adminCreate struct {
	Name      string    `json:"name" pattern:"^[A-Za-z0-9][A-Za-z0-9._@-]{0,62}$" patternDescription:"1 to 63 of letters, digits and . _ @ -" doc:"Name of the admin in the audit log; unique."`
	Role      string    `json:"role" enum:"admin,viewer" doc:"admin: may use every operation. viewer: may read everything except admin keys, and change nothing."`
	ExpiresAt time.Time `json:"expires_at,omitzero" doc:"Time at which the key expires. Absent: the key does not expire."`
}

type bootstrapRequest struct {
	Secret string `json:"secret" maxLength:"200" doc:"The one-time secret that the gateway prints at its start, tw-boot-…"`
	Name   string `json:"name" pattern:"^[A-Za-z0-9][A-Za-z0-9._@-]{0,62}$" patternDescription:"1 to 63 of letters, digits and . _ @ -" doc:"Name of the admin in the audit log."`
}

type adminView struct {
	store.Admin
	Expired    bool `json:"expired"`
	FromConfig bool `json:"from_config" doc:"Defined in config.yaml; edit that file to change it."`
}

type adminAnswer struct {
	Admin  adminView `json:"admin"`
	Secret string    `json:"secret" doc:"The key itself. No other answer shows it again."`
}

// isConfigAdmin reports whether an admin is defined in config.yaml. Only admins of the database
// have a creation time.
func isConfigAdmin(ad store.Admin) bool { return ad.CreatedAt.IsZero() }

func showAdmin(ad store.Admin) adminView {
	return adminView{Admin: ad, FromConfig: isConfigAdmin(ad), Expired: !ad.ExpiresAt.IsZero() &&
		!time.Now().Before(ad.ExpiresAt)}
}

type adminAPI struct {
	*gateway
	guard *guard
}

func (a *adminAPI) listAdmins(_ context.Context, in *struct{ PageQuery }) (*reply[page[adminView]], error) {
	all := a.control.Snapshot().Identity.Admins()
	id, name := func(v *adminView) string { return v.ID }, func(v *adminView) string { return v.Name }
	return &reply[page[adminView]]{Body: paged(mapped(all, showAdmin), in.PageQuery, id, name)}, nil
}

// newAdminKey returns an admin with a new key, and the key. It writes nothing.
func newAdminKey(name, role, by string, expires time.Time) (secret string, ad store.Admin, err error) {
	if secret, err = tenants.NewKey(rand.Reader, tenants.AdminPrefix); err != nil {
		return "", ad, err
	}
	id, err := tenants.NewID(rand.Reader)
	if err != nil {
		return "", ad, err
	}
	return secret, store.Admin{ID: id, Name: name, Role: role, Hint: tenants.Hint(secret), Digest: tenants.Digest(secret),
		CreatedBy: by, CreatedAt: time.Now().UTC(), ExpiresAt: expires}, nil
}

func (a *adminAPI) createAdmin(ctx context.Context, in *struct{ Body adminCreate }) (*reply[adminAnswer], error) {
	if !in.Body.ExpiresAt.IsZero() && !in.Body.ExpiresAt.After(time.Now()) {
		return nil, invalid("body.expires_at", "the time has passed: send a future time", in.Body.ExpiresAt)
	}
	all := a.control.Snapshot().Identity.Admins()
	if slices.ContainsFunc(all, func(ad store.Admin) bool { return ad.Name == in.Body.Name && isConfigAdmin(ad) }) {
		return nil, a.failed("creating an admin", store.ErrExists) // names must be unique in the audit log
	}
	secret, ad, err := newAdminKey(in.Body.Name, in.Body.Role, actorOf(ctx).Name, in.Body.ExpiresAt.UTC())
	if err != nil {
		return nil, a.failed("creating an admin's key", err)
	}
	made, err := a.control.Stores.SQL.CreateAdmin(ctx, actorOf(ctx), ad)
	if err != nil {
		return nil, a.failed("creating an admin", err)
	}
	a.control.Changed(ctx)
	return &reply[adminAnswer]{Body: adminAnswer{Admin: showAdmin(made), Secret: secret}}, nil
}

func (a *adminAPI) deleteAdmin(ctx context.Context, in *IDPath) (*struct{}, error) {
	ad, err := upToDate(ctx, a.gateway, func() (store.Admin, error) {
		all := a.control.Snapshot().Identity.Admins()
		if i := slices.IndexFunc(all, func(ad store.Admin) bool { return ad.ID == in.ID }); i >= 0 {
			return all[i], nil
		}
		return store.Admin{}, notFound("admin", in.ID)
	})
	if err != nil {
		return nil, err
	}
	if isConfigAdmin(ad) {
		return nil, fromConfig("admin", ad.Name)
	}
	elsewhere := slices.ContainsFunc(a.control.Snapshot().Identity.Admins(), func(ad store.Admin) bool {
		return isConfigAdmin(ad) && ad.Role == store.RoleAdmin
	})
	if err := a.control.Stores.SQL.DeleteAdmin(ctx, actorOf(ctx), in.ID, elsewhere); err != nil {
		return nil, a.failed("deleting an admin", err)
	}
	a.control.Changed(ctx)
	return nil, nil
}

func (a *adminAPI) bootstrap(ctx context.Context, in *struct{ Body bootstrapRequest }) (*reply[adminAnswer], error) {
	if !a.control.Bootstrap.Check(in.Body.Secret) {
		a.guard.counts.AuthFailures.Inc()
		a.guard.logOncePerSecond(ctx, actorOf(ctx), "admin.refused", "POST /admin/bootstrap", "an incorrect secret")
		if tooMany, wait := a.control.AuthFailures.Add(actorOf(ctx).IP, time.Now()); tooMany {
			return nil,
				huma.ErrorWithHeaders(huma.Error429TooManyRequests("Too many incorrect secrets came from this address. Try again "+
					"after the time in Retry-After."),
					http.Header{"Retry-After": {strconv.Itoa(int(wait/time.Second) + 1)}})
		}
		return nil, huma.Error401Unauthorized("The secret is incorrect, already used or expired. A gateway " +
			"without an admin in its database prints a new secret when it starts.")
	}
	secret, ad, err := newAdminKey(in.Body.Name, store.RoleAdmin, "bootstrap", time.Time{})
	if err != nil {
		return nil, a.failed("creating the first admin's key", err)
	}
	made, err := a.control.Stores.SQL.Bootstrap(ctx, actorOf(ctx), ad)
	if err != nil {
		return nil, a.failed("creating the first admin", err) // the secret stays valid: nothing was created
	}
	a.control.Bootstrap.Void()
	a.control.Changed(ctx)
	return &reply[adminAnswer]{Body: adminAnswer{Admin: showAdmin(made), Secret: secret}}, nil
}
