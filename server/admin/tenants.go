package admin

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
		{Id: "list-tenants", Method: http.MethodGet, Path: "/admin/tenants", summary: "List the tenants", roles: anybody,
			register: func(a *Plane, op huma.Operation) { handle(a, op, a.listTenants) }},
		{Id: "create-tenant", Method: http.MethodPost, Path: "/admin/tenants", summary: "Make a tenant, with issue_key a key of it too", roles: admins,
			status: http.StatusCreated, errors: []int{http.StatusConflict, http.StatusNotImplemented, http.StatusServiceUnavailable},
			register: func(a *Plane, op huma.Operation) { handle(a, bodyOf[TenantCreate](a, op), a.createTenant) }},
		{Id: "get-tenant", Method: http.MethodGet, Path: "/admin/tenants/{name}", summary: "Show a tenant and what it uses now", roles: anybody,
			errors:   []int{http.StatusNotFound},
			register: func(a *Plane, op huma.Operation) { handle(a, op, a.getTenant) }},
		{Id: "update-tenant", Method: http.MethodPatch, Path: "/admin/tenants/{name}", summary: "Change a tenant by a JSON merge patch", roles: admins,
			errors:   []int{http.StatusNotFound, http.StatusConflict, http.StatusPreconditionFailed, http.StatusNotImplemented, http.StatusServiceUnavailable},
			register: func(a *Plane, op huma.Operation) { handle(a, bodyOf[TenantSettings](a, op), a.updateTenant) }},
		{Id: "delete-tenant", Method: http.MethodDelete, Path: "/admin/tenants/{name}", summary: "Delete a tenant with its keys; what it has used stays known", roles: admins,
			status: http.StatusNoContent, errors: []int{http.StatusNotFound, http.StatusConflict, http.StatusPreconditionFailed, http.StatusNotImplemented, http.StatusServiceUnavailable},
			register: func(a *Plane, op huma.Operation) { handle(a, op, a.deleteTenant) }},
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

func (a *Plane) listTenants(_ context.Context, in *struct{ PageQuery }) (*reply[Page[TenantView]], error) {
	ts, ks, _, _ := a.Control.TenantsNow()
	keys := countKeys(ks, time.Now())
	views := make([]TenantView, len(ts))
	for i, t := range ts {
		views[i] = tenantView(t, keys[t.Name])
	}
	name := func(t *TenantView) string { return t.Name }
	return &reply[Page[TenantView]]{Body: paged(views, in.PageQuery, name, name)}, nil
}

// tenantNamed returns the tenant of that name.
func (a *Plane) tenantNamed(name string) (tenants.Tenant, error) {
	ts, _, _, _ := a.Control.TenantsNow()
	i := slices.IndexFunc(ts, func(t tenants.Tenant) bool { return t.Name == name })
	if i < 0 {
		return tenants.Tenant{}, notFound("tenant", name)
	}
	return ts[i], nil
}

// changeable returns the tenant of that name if the API may change it, at the
// version that is wanted.
func (a *Plane) changeable(ctx context.Context, name string, want int64) (tenants.Tenant, error) {
	t, err := a.tenantNamed(name)
	if err == nil && !t.FromConfig && want != 0 && t.Version != want { // this gateway may be the one that is behind
		if err = a.Control.Database.Read(ctx); err == nil {
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

func (a *Plane) getTenant(_ context.Context, in *struct {
	Name string `path:"name" maxLength:"63"`
}) (*tagged[TenantView], error) {
	t, err := a.tenantNamed(in.Name)
	if err != nil {
		return nil, err
	}
	_, ks, _, _ := a.Control.TenantsNow()
	now := time.Now()
	v := tenantView(t, countKeys(ks, now)[t.Name])
	v.Now = a.usedNow(t.Name, "", now)
	return &tagged[TenantView]{ETag: etag(t.Version), Body: v}, nil
}

// usedNow asks the limiter of this process, which knows at least what passed
// through it.
func (a *Plane) usedNow(tenant, key string, now time.Time) *UsedNow {
	day, month := a.Control.Stores.Local.Spent(tenant, key, now)
	return &UsedNow{Inflight: a.Control.Stores.Local.Inflight(tenant, key), Day: SpentView(day), Month: SpentView(month)}
}

func (a *Plane) createTenant(ctx context.Context, in *struct{ Body json.RawMessage }) (*tagged[TenantAnswer], error) {
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
	made, err := a.Control.Stores.SQL.CreateTenant(ctx, actorOf(ctx), c.tenant(tenants.Tenant{Name: c.Name}))
	if err != nil {
		return nil, a.failed("making a tenant", err)
	}
	answer := TenantAnswer{Tenant: tenantView(made, 0), Warnings: advice(a.Control.Snapshot().File, made.Rights, made.Limits)}
	if c.IssueKey {
		key, secret, err := a.mint(ctx, tenants.Key{Tenant: made.Name, Name: c.KeyName})
		if err != nil {
			a.Control.Database.Changed(ctx)
			return nil, a.failed("making the tenant's key", fmt.Errorf("the tenant %s was made, its key was not: %w", made.Name, err))
		}
		answer.Tenant.Keys, answer.Key, answer.Secret = 1, new(keyView(key, time.Now())), secret
	}
	a.Control.Database.Changed(ctx)
	return &tagged[TenantAnswer]{ETag: etag(made.Version), Body: answer}, nil
}

// mint makes a key and stores what may be known of it.
func (a *Plane) mint(ctx context.Context, k tenants.Key) (tenants.Key, string, error) {
	secret, made, err := tenants.Mint(rand.Reader, k.Tenant)
	if err != nil {
		return k, "", err
	}
	k.ID, k.Hint, k.Digest, k.CreatedBy = made.ID, made.Hint, made.Digest, actorOf(ctx).Name
	k, err = a.Control.Stores.SQL.CreateKey(ctx, actorOf(ctx), k)
	return k, secret, err
}

func (a *Plane) updateTenant(ctx context.Context, in *struct {
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
		made, err = a.Control.Stores.SQL.UpdateTenant(ctx, actorOf(ctx), settings.tenant(t), t.Version)
		return err
	})
	if err != nil {
		return nil, a.failed("changing a tenant", err)
	}
	_, ks, _, _ := a.Control.TenantsNow()
	return &tagged[TenantAnswer]{ETag: etag(made.Version), Body: TenantAnswer{Tenant: tenantView(made, countKeys(ks, time.Now())[made.Name]),
		Warnings: advice(a.Control.Snapshot().File, made.Rights, made.Limits)}}, nil
}

func (a *Plane) deleteTenant(ctx context.Context, in *struct {
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
		return a.Control.Stores.SQL.DeleteTenant(ctx, actorOf(ctx), t.Name, t.Version)
	})
	if err != nil {
		return nil, a.failed("deleting a tenant", err)
	}
	return nil, nil
}
