package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"tierway/store"
	"tierway/tenants"
)

// tenantSettings names what may be changed of a tenant.
func tenantSettings() []string {
	return []string{"disabled", "tiers", "models", "priority", "default_priority", "weight", "limits", "isolate_cache", "degrade", "fail_closed"}
}

// TenantSettings describes what may be changed of a tenant.
type TenantSettings tenants.Tenant

// TransformSchema is part of huma.SchemaTransformer.
func (TenantSettings) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	return only(s, tenantSettings()...)
}

type tenantCreate struct {
	Name string `json:"name" pattern:"^[a-z0-9-]{1,63}$" patternDescription:"1 to 63 of a-z, 0-9 and -" doc:"Cannot be changed."`
	tenants.Tenant
	IssueKey bool   `json:"issue_key" required:"false" doc:"Make a key too; the answer holds it, once."`
	KeyName  string `json:"key_name" required:"false" maxLength:"100" doc:"The key's name."`
}

func (tenantCreate) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	return only(s, append(tenantSettings(), "name", "issue_key", "key_name")...)
}

type tenantView struct {
	tenants.Tenant
	Keys int      `json:"keys" doc:"Those that may be used."`
	Now  *usedNow `json:"now,omitempty" doc:"What this gateway knows to be used; in the answer for one tenant."`
}

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

// showTenant returns the tenant as requests meet it, with how many of the keys are its
// own and in force.
func showTenant(t tenants.Tenant, keys int) tenantView {
	t.Weight, t.Default = max(1, t.Weight), max(t.Default, t.Priority)
	return tenantView{Tenant: t, Keys: keys}
}

func countKeys(ks []tenants.Key, now time.Time) map[string]int {
	n := map[string]int{}
	for i := range ks {
		if ks[i].Valid(now) {
			n[ks[i].Tenant]++
		}
	}
	return n
}

func (a *tenantAPI) listTenants(_ context.Context, in *struct{ PageQuery }) (*reply[page[tenantView]], error) {
	ts, ks := a.control.Snapshot().Identity.Tenants()
	keys := countKeys(ks, time.Now())
	views := mapped(ts, func(t tenants.Tenant) tenantView { return showTenant(t, keys[t.Name]) })
	name := func(t *tenantView) string { return t.Name }
	return &reply[page[tenantView]]{Body: paged(views, in.PageQuery, name, name)}, nil
}

func (a *tenantAPI) getTenant(_ context.Context, in *TenantPath) (*tagged[tenantView], error) {
	t, err := a.tenant(in.Name)
	if err != nil {
		return nil, err
	}
	_, ks := a.control.Snapshot().Identity.Tenants()
	now := time.Now()
	v := showTenant(t, countKeys(ks, now)[t.Name])
	v.Now = a.usedNow(t.Name, "", now)
	return &tagged[tenantView]{ETag: etag(t.Version), Body: v}, nil
}

func (a *tenantAPI) createTenant(ctx context.Context, in *struct{ Body json.RawMessage }) (*tagged[tenantAnswer], error) {
	c, err := merged(tenantCreate{}, in.Body)
	if err == nil {
		err = checkRights(c.Rights, in.Body)
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
	c.Tenant.Name = c.Name
	made, err := a.control.Stores.SQL.CreateTenant(ctx, actorOf(ctx), c.Tenant)
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

func (a *tenantAPI) updateTenant(ctx context.Context, in *struct {
	TenantPath
	Precondition
	Body json.RawMessage
}) (*tagged[tenantAnswer], error) {
	made, err := a.changeTenant(ctx, in.Name, in.IfMatch, func(t tenants.Tenant) (tenants.Tenant, error) {
		changed, err := merged(t, in.Body)
		if err == nil {
			err = checkRights(changed.Rights, in.Body)
		}
		if err != nil {
			return t, err
		}
		return a.control.Stores.SQL.UpdateTenant(ctx, actorOf(ctx), changed, t.Version)
	})
	if err != nil {
		return nil, a.failed("changing a tenant", err)
	}
	_, ks := a.control.Snapshot().Identity.Tenants()
	return &tagged[tenantAnswer]{ETag: etag(made.Version), Body: tenantAnswer{Tenant: showTenant(made, countKeys(ks, time.Now())[made.Name]),
		Warnings: advice(a.control.Snapshot().File, made.Rights, made.Limits)}}, nil
}

func (a *tenantAPI) deleteTenant(ctx context.Context, in *struct {
	TenantPath
	Confirm string `query:"confirm" doc:"The tenant's name once more."`
	Precondition
}) (*struct{}, error) {
	_, err := a.changeTenant(ctx, in.Name, in.IfMatch, func(t tenants.Tenant) (tenants.Tenant, error) {
		if in.Confirm != t.Name {
			return t, invalid("query.confirm", "repeat the tenant's name: ?confirm="+t.Name+" deletes it with all its keys", in.Confirm)
		}
		return t, a.control.Stores.SQL.DeleteTenant(ctx, actorOf(ctx), t.Name, t.Version)
	})
	if err != nil {
		return nil, a.failed("deleting a tenant", err)
	}
	return nil, nil
}
