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

// tenantSettings returns the names of the fields of a tenant that may be changed.
func tenantSettings() []string {
	return []string{"disabled", "tiers", "models", "priority", "default_priority", "weight", "limits", "isolate_cache",
		"degrade", "fail_closed"}
}

// TenantSettings describes the fields of a tenant that may be changed.
type TenantSettings tenants.Tenant

// TransformSchema implements huma.SchemaTransformer.
func (TenantSettings) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	return keepOnly(s, tenantSettings()...)
}

type tenantCreate struct {
	Name string `json:"name" pattern:"^[a-z0-9-]{1,63}$" patternDescription:"1 to 63 of a-z, 0-9 and -" doc:"Name of the tenant. It cannot be changed later."`
	tenants.Tenant
	IssueKey bool   `json:"issue_key" required:"false" doc:"Also create a key; the answer shows its secret once."`
	KeyName  string `json:"key_name" required:"false" maxLength:"100" doc:"Name of the key that issue_key creates."`
}

func (tenantCreate) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	return keepOnly(s, append(tenantSettings(), "name", "issue_key", "key_name")...)
}

type tenantView struct {
	tenants.Tenant
	Keys int      `json:"keys" doc:"Number of keys that are valid now."`
	Now  *usedNow `json:"now,omitempty" doc:"Current usage as this gateway knows it. Only in the answer for one tenant."`
}

type usedNow struct {
	Inflight int64     `json:"inflight" doc:"In-flight requests on this gateway."`
	Day      spentView `json:"day" doc:"Usage of the current UTC day."`
	Month    spentView `json:"month" doc:"Usage of the current UTC month."`
}

type spentView struct {
	Tokens int64         `json:"tokens"`
	Money  tenants.Money `json:"money"`
}

type tenantAnswer struct {
	Tenant   tenantView `json:"tenant"`
	Key      *keyView   `json:"key,omitempty"`
	Secret   string     `json:"secret,omitempty" doc:"The key itself. No other answer shows it again."`
	Warnings []string   `json:"warnings,omitempty" doc:"Settings that have no effect with the configuration in force."`
}

// showTenant returns the tenant with its effective settings. keys is the number of its valid keys.
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

func (a *tenantAPI) createTenant(ctx context.Context, in *struct {
	Body json.RawMessage
}) (*tagged[tenantAnswer], error) {
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
	if _, err := a.tenant(c.Name); err == nil { // tenants of config.yaml are not in the database
		return nil, a.failed("creating a tenant", store.ErrExists)
	}
	c.Tenant.Name = c.Name
	made, err := a.control.Stores.SQL.CreateTenant(ctx, actorOf(ctx), c.Tenant)
	if err != nil {
		return nil, a.failed("creating a tenant", err)
	}
	answer := tenantAnswer{Tenant: showTenant(made, 0),
		Warnings: ineffectiveSettings(a.control.Snapshot().File, made.Rights, made.Limits)}
	if c.IssueKey {
		key, secret, err := a.createKeyWithSecret(ctx, tenants.Key{Tenant: made.Name, Name: c.KeyName})
		if err != nil {
			a.control.Database.Changed(ctx)
			return nil,
				a.failed("creating the tenant's key", fmt.Errorf("the tenant %s was created, its key was not: %w", made.Name, err))
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
	return &tagged[tenantAnswer]{ETag: etag(made.Version),
		Body: tenantAnswer{Tenant: showTenant(made, countKeys(ks, time.Now())[made.Name]),
			Warnings: ineffectiveSettings(a.control.Snapshot().File, made.Rights, made.Limits)}}, nil
}

func (a *tenantAPI) deleteTenant(ctx context.Context, in *struct {
	TenantPath
	Confirm string `query:"confirm" doc:"The tenant's name, repeated to confirm the deletion."`
	Precondition
}) (*struct{}, error) {
	_, err := a.changeTenant(ctx, in.Name, in.IfMatch, func(t tenants.Tenant) (tenants.Tenant, error) {
		if in.Confirm != t.Name {
			return t, invalid("query.confirm", "send ?confirm="+t.Name+" to delete the tenant and all its keys", in.Confirm)
		}
		return t, a.control.Stores.SQL.DeleteTenant(ctx, actorOf(ctx), t.Name, t.Version)
	})
	if err != nil {
		return nil, a.failed("deleting a tenant", err)
	}
	return nil, nil
}
