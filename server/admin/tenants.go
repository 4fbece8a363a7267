package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"tierway/store"
	"tierway/tenants"
)

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

type tenantCreate struct {
	Name string `json:"name" pattern:"^[a-z0-9-]{1,63}$" patternDescription:"1 to 63 of a-z, 0-9 and -" doc:"Cannot be changed."`
	TenantSettings
	IssueKey bool   `json:"issue_key" required:"false" doc:"Make a key too; the answer holds it, once."`
	KeyName  string `json:"key_name" required:"false" maxLength:"100" doc:"The key's name."`
}

type tenantView struct {
	Name string `json:"name"`
	TenantSettings
	Keys       int        `json:"keys" doc:"Those that may be used."`
	FromConfig bool       `json:"from_config" doc:"It stands in config.yaml and is changed there."`
	Version    int64      `json:"version"`
	CreatedAt  *time.Time `json:"created_at,omitempty"`
	UpdatedAt  *time.Time `json:"updated_at,omitempty"`
	Now        *usedNow   `json:"now,omitempty" doc:"What this gateway knows to be used; in the answer for one tenant."`
}

// usedNow is what of limits is used at the moment, as this gateway knows it.
type usedNow struct {
	Inflight int64     `json:"inflight" doc:"Requests under way on this gateway."`
	Day      spentView `json:"day" doc:"This UTC day."`
	Month    spentView `json:"month" doc:"This UTC month."`
}

type spentView struct {
	Tokens int64         `json:"tokens"`
	Money  tenants.Money `json:"money"`
}

type tenantAnswer struct {
	Tenant   tenantView `json:"tenant"`
	Key      *keyView   `json:"key,omitempty"`
	Secret   string     `json:"secret,omitempty" doc:"The key itself. It is shown here and nowhere again."`
	Warnings []string   `json:"warnings,omitempty" doc:"What of the settings does nothing with the configuration in force."`
}

// tenant returns the tenant with the settings.
func (s TenantSettings) tenant(t tenants.Tenant) tenants.Tenant {
	t.Disabled, t.Rights, t.Weight, t.Limits = s.Disabled, tenants.Rights(s.RightsSettings), s.Weight, s.Limits
	t.IsolateCache, t.Degrade, t.FailClosed = s.IsolateCache, s.Degrade, s.FailClosed
	return t
}

func tenantSettings(t tenants.Tenant) TenantSettings {
	return TenantSettings{Disabled: t.Disabled, RightsSettings: RightsSettings(t.Rights), Weight: max(1, t.Weight), Limits: t.Limits,
		IsolateCache: t.IsolateCache, Degrade: t.Degrade, FailClosed: t.FailClosed}
}

// showTenant returns the tenant as the API shows it, with how many of the keys are its
// own and in force.
func showTenant(t tenants.Tenant, keys int) tenantView {
	settings := tenantSettings(t)
	settings.RightsSettings = settings.inEffect()
	return tenantView{Name: t.Name, TenantSettings: settings, Keys: keys, FromConfig: t.FromConfig, Version: t.Version,
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

func (a *Plane) listTenants(_ context.Context, in *struct{ PageQuery }) (*reply[page[tenantView]], error) {
	ts, ks, _, _ := a.control.TenantsNow()
	keys := countKeys(ks, time.Now())
	views := mapped(ts, func(t tenants.Tenant) tenantView { return showTenant(t, keys[t.Name]) })
	name := func(t *tenantView) string { return t.Name }
	return &reply[page[tenantView]]{Body: paged(views, in.PageQuery, name, name)}, nil
}

func (a *Plane) getTenant(_ context.Context, in *TenantPath) (*tagged[tenantView], error) {
	t, err := a.tenant(in.Name)
	if err != nil {
		return nil, err
	}
	_, ks, _, _ := a.control.TenantsNow()
	now := time.Now()
	v := showTenant(t, countKeys(ks, now)[t.Name])
	v.Now = a.usedNow(t.Name, "", now)
	return &tagged[tenantView]{ETag: etag(t.Version), Body: v}, nil
}

func (a *Plane) createTenant(ctx context.Context, in *struct{ Body json.RawMessage }) (*tagged[tenantAnswer], error) {
	c, err := merged(tenantCreate{}, in.Body)
	if err == nil {
		err = c.check(in.Body)
	}
	if err == nil {
		err = checkName("body.key_name", c.KeyName)
	}
	if err != nil {
		return nil, err
	}
	if _, err := a.tenant(c.Name); err == nil { // config.yaml's are not in the database
		return nil, a.failed("making a tenant", store.ErrExists)
	}
	made, err := a.control.Stores.SQL.CreateTenant(ctx, actorOf(ctx), c.tenant(tenants.Tenant{Name: c.Name}))
	if err != nil {
		return nil, a.failed("making a tenant", err)
	}
	answer := tenantAnswer{Tenant: showTenant(made, 0), Warnings: advice(a.control.Snapshot().File, made.Rights, made.Limits)}
	if c.IssueKey {
		key, secret, err := a.mint(ctx, tenants.Key{Tenant: made.Name, Name: c.KeyName})
		if err != nil {
			a.control.Database.Changed(ctx)
			return nil, a.failed("making the tenant's key", fmt.Errorf("the tenant %s was made, its key was not: %w", made.Name, err))
		}
		answer.Tenant.Keys, answer.Key, answer.Secret = 1, new(showKey(key, time.Now())), secret
	}
	a.control.Database.Changed(ctx)
	return &tagged[tenantAnswer]{ETag: etag(made.Version), Body: answer}, nil
}

func (a *Plane) updateTenant(ctx context.Context, in *struct {
	TenantPath
	Precondition
	Body json.RawMessage
}) (*tagged[tenantAnswer], error) {
	var made tenants.Tenant
	err := a.changeTenant(ctx, in.Name, in.IfMatch, func(t tenants.Tenant) error {
		settings, err := merged(tenantSettings(t), in.Body)
		if err == nil {
			err = settings.check(in.Body)
		}
		if err != nil {
			return err
		}
		made, err = a.control.Stores.SQL.UpdateTenant(ctx, actorOf(ctx), settings.tenant(t), t.Version)
		return err
	})
	if err != nil {
		return nil, a.failed("changing a tenant", err)
	}
	_, ks, _, _ := a.control.TenantsNow()
	return &tagged[tenantAnswer]{ETag: etag(made.Version), Body: tenantAnswer{Tenant: showTenant(made, countKeys(ks, time.Now())[made.Name]),
		Warnings: advice(a.control.Snapshot().File, made.Rights, made.Limits)}}, nil
}

func (a *Plane) deleteTenant(ctx context.Context, in *struct {
	TenantPath
	Confirm string `query:"confirm" doc:"The tenant's name once more."`
	Precondition
}) (*struct{}, error) {
	err := a.changeTenant(ctx, in.Name, in.IfMatch, func(t tenants.Tenant) error {
		if in.Confirm != t.Name {
			return invalid("query.confirm", "repeat the tenant's name: ?confirm="+t.Name+" deletes it with all its keys", in.Confirm)
		}
		return a.control.Stores.SQL.DeleteTenant(ctx, actorOf(ctx), t.Name, t.Version)
	})
	if err != nil {
		return nil, a.failed("deleting a tenant", err)
	}
	return nil, nil
}
