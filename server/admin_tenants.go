package server

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"tierway/store"
	"tierway/tenants"
)

// tenantOperations are those on tenants.
func tenantOperations() []operation {
	return []operation{
		{id: "list-tenants", method: http.MethodGet, path: "/admin/tenants", summary: "List the tenants", roles: anybody,
			register: func(a *adminPlane, op huma.Operation) { handle(a, op, a.listTenants) }},
		{id: "create-tenant", method: http.MethodPost, path: "/admin/tenants", summary: "Make a tenant, with issue_key a key of it too", roles: admins,
			status: http.StatusCreated, errors: []int{http.StatusConflict, http.StatusNotImplemented, http.StatusServiceUnavailable},
			register: func(a *adminPlane, op huma.Operation) { handle(a, bodyOf[TenantCreate](a, op), a.createTenant) }},
		{id: "get-tenant", method: http.MethodGet, path: "/admin/tenants/{name}", summary: "Show a tenant and what it uses now", roles: anybody,
			errors:   []int{http.StatusNotFound},
			register: func(a *adminPlane, op huma.Operation) { handle(a, op, a.getTenant) }},
		{id: "update-tenant", method: http.MethodPatch, path: "/admin/tenants/{name}", summary: "Change a tenant by a JSON merge patch", roles: admins,
			errors:   []int{http.StatusNotFound, http.StatusConflict, http.StatusPreconditionFailed, http.StatusNotImplemented, http.StatusServiceUnavailable},
			register: func(a *adminPlane, op huma.Operation) { handle(a, bodyOf[TenantSettings](a, op), a.updateTenant) }},
		{id: "delete-tenant", method: http.MethodDelete, path: "/admin/tenants/{name}", summary: "Delete a tenant with its keys; what it has used stays known", roles: admins,
			status: http.StatusNoContent, errors: []int{http.StatusNotFound, http.StatusConflict, http.StatusPreconditionFailed, http.StatusNotImplemented, http.StatusServiceUnavailable},
			register: func(a *adminPlane, op huma.Operation) { handle(a, op, a.deleteTenant) }},
	}
}

// TenantSettings is what may be changed of a tenant.
type TenantSettings struct {
	Disabled bool `json:"disabled" required:"false" nullable:"true" doc:"Its requests are refused."`
	RightsSettings
	Weight       int            `json:"weight" required:"false" nullable:"true" minimum:"1" maximum:"1000" doc:"Its share of the tokens beside other tenants of a class while both wait; absent: 1."`
	Limits       tenants.Limits `json:"limits" required:"false" doc:"Of all its keys together; absent: none."`
	IsolateCache bool           `json:"isolate_cache" required:"false" nullable:"true" doc:"Its prompts share no engine's cache with other tenants."`
	Degrade      bool           `json:"degrade" required:"false" nullable:"true" doc:"A spent budget moves it to the cheapest tier it may use."`
	FailClosed   bool           `json:"fail_closed" required:"false" nullable:"true" doc:"Refused while Redis is away."`
}

// TenantCreate is a tenant to be made.
type TenantCreate struct {
	Name string `json:"name" pattern:"^[a-z0-9-]{1,63}$" patternDescription:"1 to 63 of a-z, 0-9 and -" doc:"Cannot be changed."`
	TenantSettings
	IssueKey bool   `json:"issue_key" required:"false" doc:"Make a key too; the answer holds it, once."`
	KeyName  string `json:"key_name" required:"false" maxLength:"100" doc:"The key's name."`
}

// TenantView is a tenant as the API shows it.
type TenantView struct {
	Name string `json:"name"`
	TenantSettings
	Keys       int        `json:"keys" doc:"Those that may be used."`
	FromConfig bool       `json:"from_config" doc:"It stands in config.yaml and is changed there."`
	Version    int64      `json:"version"`
	CreatedAt  *time.Time `json:"created_at,omitempty"`
	UpdatedAt  *time.Time `json:"updated_at,omitempty"`
	Now        *UsedNow   `json:"now,omitempty" doc:"What this gateway knows to be used; in the answer for one tenant."`
}

// UsedNow is what of limits is used at the moment, as this gateway knows it.
type UsedNow struct {
	Inflight int64     `json:"inflight" doc:"Requests under way on this gateway."`
	Day      SpentView `json:"day" doc:"This UTC day."`
	Month    SpentView `json:"month" doc:"This UTC month."`
}

// SpentView is what was used of budgets.
type SpentView struct {
	Tokens int64         `json:"tokens"`
	Money  tenants.Money `json:"money"`
}

// TenantAnswer is a tenant after a change.
type TenantAnswer struct {
	Tenant   TenantView `json:"tenant"`
	Key      *KeyView   `json:"key,omitempty"`
	Secret   string     `json:"secret,omitempty" doc:"The key itself. It is shown here and nowhere again."`
	Warnings []string   `json:"warnings,omitempty" doc:"What of the settings does nothing with the configuration in force."`
}

// tenant returns the tenant with the settings.
func (s TenantSettings) tenant(t tenants.Tenant) tenants.Tenant {
	t.Disabled, t.Rights, t.Weight, t.Limits = s.Disabled, s.rights(), s.Weight, s.Limits
	t.IsolateCache, t.Degrade, t.FailClosed = s.IsolateCache, s.Degrade, s.FailClosed
	return t
}

func tenantSettings(t tenants.Tenant) TenantSettings {
	return TenantSettings{Disabled: t.Disabled, RightsSettings: rightsSettings(t.Rights), Weight: max(1, t.Weight), Limits: t.Limits,
		IsolateCache: t.IsolateCache, Degrade: t.Degrade, FailClosed: t.FailClosed}
}

// tenantView returns the tenant as the API shows it, with how many of the keys are its
// own and in force.
func tenantView(t tenants.Tenant, keys int) TenantView {
	settings := tenantSettings(t)
	settings.RightsSettings = settings.inEffect()
	return TenantView{Name: t.Name, TenantSettings: settings, Keys: keys, FromConfig: t.FromConfig, Version: t.Version,
		CreatedAt: optional(t.CreatedAt), UpdatedAt: optional(t.UpdatedAt)}
}

// countKeys returns how many keys each tenant has in force.
func countKeys(ks []tenants.Key, now time.Time) map[string]int {
	n := map[string]int{}
	for i := range ks {
		if ks[i].Valid(now) {
			n[ks[i].Tenant]++
		}
	}
	return n
}

func (a *adminPlane) listTenants(_ context.Context, in *struct{ PageQuery }) (*reply[page[TenantView]], error) {
	ts, ks, _, _ := a.s.tenantsNow()
	keys := countKeys(ks, time.Now())
	views := make([]TenantView, len(ts))
	for i, t := range ts {
		views[i] = tenantView(t, keys[t.Name])
	}
	name := func(t *TenantView) string { return t.Name }
	return &reply[page[TenantView]]{Body: paged(views, in.PageQuery, name, name)}, nil
}

// tenantNamed returns the tenant of that name.
func (a *adminPlane) tenantNamed(name string) (tenants.Tenant, error) {
	ts, _, _, _ := a.s.tenantsNow()
	i := slices.IndexFunc(ts, func(t tenants.Tenant) bool { return t.Name == name })
	if i < 0 {
		return tenants.Tenant{}, notFound("tenant", name)
	}
	return ts[i], nil
}

// changeable returns the tenant of that name if the API may change it, at the
// version that is wanted.
func (a *adminPlane) changeable(ctx context.Context, name string, want int64) (tenants.Tenant, error) {
	t, err := a.tenantNamed(name)
	if err == nil && !t.FromConfig && want != 0 && t.Version != want { // this gateway may be the one that is behind
		if err = a.s.readDatabase(ctx); err == nil {
			t, err = a.tenantNamed(name)
		}
	}
	switch {
	case err != nil:
		return t, err
	case t.FromConfig:
		return t, fromConfig("tenant", name)
	case want != 0 && t.Version != want:
		return t, store.ErrConflict
	}
	return t, nil
}

func (a *adminPlane) getTenant(_ context.Context, in *struct {
	Name string `path:"name" maxLength:"63"`
}) (*tagged[TenantView], error) {
	t, err := a.tenantNamed(in.Name)
	if err != nil {
		return nil, err
	}
	_, ks, _, _ := a.s.tenantsNow()
	now := time.Now()
	v := tenantView(t, countKeys(ks, now)[t.Name])
	v.Now = a.usedNow(t.Name, "", now)
	return &tagged[TenantView]{ETag: etag(t.Version), Body: v}, nil
}

// usedNow asks the limiter of this process, which knows at least what passed
// through it.
func (a *adminPlane) usedNow(tenant, key string, now time.Time) *UsedNow {
	day, month := a.s.local.Spent(tenant, key, now)
	return &UsedNow{Inflight: a.s.local.Inflight(tenant, key), Day: SpentView(day), Month: SpentView(month)}
}

func (a *adminPlane) createTenant(ctx context.Context, in *struct{ Body json.RawMessage }) (*tagged[TenantAnswer], error) {
	if err := a.database(); err != nil {
		return nil, err
	}
	c, err := merged(TenantCreate{}, in.Body)
	if err == nil {
		err = c.check(in.Body)
	}
	if err == nil {
		err = checkName("body.key_name", c.KeyName)
	}
	if err != nil {
		return nil, err
	}
	if _, err := a.tenantNamed(c.Name); err == nil { // config.yaml's are not in the database
		return nil, a.failed("making a tenant", store.ErrExists)
	}
	made, err := a.s.sql.CreateTenant(ctx, actorOf(ctx), c.tenant(tenants.Tenant{Name: c.Name}))
	if err != nil {
		return nil, a.failed("making a tenant", err)
	}
	answer := TenantAnswer{Tenant: tenantView(made, 0), Warnings: advice(a.s.snapshot.Load().file, made.Rights, made.Limits)}
	if c.IssueKey {
		key, secret, err := a.mint(ctx, tenants.Key{Tenant: made.Name, Name: c.KeyName})
		if err != nil {
			a.s.changed(ctx)
			return nil, a.failed("making the tenant's key", fmt.Errorf("the tenant %s was made, its key was not: %w", made.Name, err))
		}
		answer.Tenant.Keys, answer.Key, answer.Secret = 1, new(keyView(key, time.Now())), secret
	}
	a.s.changed(ctx)
	return &tagged[TenantAnswer]{ETag: etag(made.Version), Body: answer}, nil
}

// mint makes a key and stores what may be known of it.
func (a *adminPlane) mint(ctx context.Context, k tenants.Key) (tenants.Key, string, error) {
	secret, made, err := tenants.Mint(rand.Reader, k.Tenant)
	if err != nil {
		return k, "", err
	}
	k.ID, k.Hint, k.Digest, k.CreatedBy = made.ID, made.Hint, made.Digest, actorOf(ctx).Name
	k, err = a.s.sql.CreateKey(ctx, actorOf(ctx), k)
	return k, secret, err
}

func (a *adminPlane) updateTenant(ctx context.Context, in *struct {
	Name    string `path:"name" maxLength:"63"`
	IfMatch string `header:"If-Match" doc:"The ETag that the change is based on."`
	Body    json.RawMessage
}) (*tagged[TenantAnswer], error) {
	var made tenants.Tenant
	err := a.onVersion(ctx, in.IfMatch, func(want int64) error {
		t, err := a.changeable(ctx, in.Name, want)
		if err != nil {
			return err
		}
		settings, err := merged(tenantSettings(t), in.Body)
		if err == nil {
			err = settings.check(in.Body)
		}
		if err != nil {
			return err
		}
		made, err = a.s.sql.UpdateTenant(ctx, actorOf(ctx), settings.tenant(t), t.Version)
		return err
	})
	if err != nil {
		return nil, a.failed("changing a tenant", err)
	}
	_, ks, _, _ := a.s.tenantsNow()
	return &tagged[TenantAnswer]{ETag: etag(made.Version), Body: TenantAnswer{Tenant: tenantView(made, countKeys(ks, time.Now())[made.Name]),
		Warnings: advice(a.s.snapshot.Load().file, made.Rights, made.Limits)}}, nil
}

func (a *adminPlane) deleteTenant(ctx context.Context, in *struct {
	Name    string `path:"name" maxLength:"63"`
	Confirm string `query:"confirm" doc:"The tenant's name once more."`
	IfMatch string `header:"If-Match" doc:"The ETag that the change is based on."`
}) (*struct{}, error) {
	err := a.onVersion(ctx, in.IfMatch, func(want int64) error {
		t, err := a.changeable(ctx, in.Name, want)
		if err != nil {
			return err
		}
		if in.Confirm != t.Name {
			return invalid("query.confirm", "repeat the tenant's name: ?confirm="+t.Name+" deletes it with all its keys", in.Confirm)
		}
		return a.s.sql.DeleteTenant(ctx, actorOf(ctx), t.Name, t.Version)
	})
	if err != nil {
		return nil, a.failed("deleting a tenant", err)
	}
	return nil, nil
}
