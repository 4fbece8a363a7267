package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"tierway/decisions"
	"tierway/store"
	"tierway/tenants"
)

// tenantSettings returns the names of the fields of a tenant that may be changed.
func tenantSettings() []string {
	return []string{"disabled", "tiers", "models", "priority", "default_priority", "weight", "limits", "isolate_cache",
		"degrade", "fail_closed", "response_cache"}
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
	Keys     int       `json:"keys" doc:"Number of keys that are valid now."`
	States   keyStates `json:"key_states" doc:"Number of keys by state."`
	List     []keyView `json:"key_list" nullable:"false" doc:"Keys of the tenant by id, including expired and revoked ones, without their secrets: at most 1,000. The list of its keys has all, in pages."`
	LastUsed time.Time `json:"last_used_at,omitzero" doc:"Time of the last request with a key of the database, accurate to the minute."`
	Now      usedNow   `json:"now" doc:"Current usage as this gateway knows it."`
	Today    *dayUsage `json:"today,omitempty" doc:"Requests of the current UTC day on all gateways, as far as they are written to the database. Only with today=true, and while the database is available."`
}

type keyStates struct {
	Active   int `json:"active" doc:"Valid keys, without those of grace."`
	Grace    int `json:"grace" doc:"Keys that a rotation replaced and that are still valid."`
	Expiring int `json:"expiring" doc:"Valid keys that expire within 7 days; they count under active or grace too."`
	Expired  int `json:"expired"`
	Revoked  int `json:"revoked"`
}

// expiringWithin is the time before its end in which a key counts as expiring. A week is enough for a rotation.
const expiringWithin = 7 * 24 * time.Hour

func (s *keyStates) add(k *tenants.Key, now time.Time) {
	switch k.State(now) {
	case "active":
		s.Active++
	case "grace":
		s.Grace++
	case "expired":
		s.Expired++
	case "revoked":
		s.Revoked++
	}
	if k.Valid(now) && !k.ExpiresAt.IsZero() && k.ExpiresAt.Sub(now) <= expiringWithin {
		s.Expiring++
	}
}

// addCounts adds the counts of the database.
func (s *keyStates) addCounts(c *store.KeyCounts) {
	s.Active += int(c.Active)
	s.Grace += int(c.Grace)
	s.Expiring += int(c.Expiring)
	s.Expired += int(c.Expired)
	s.Revoked += int(c.Revoked)
}

type dayUsage struct {
	Requests int64 `json:"requests" doc:"All requests, including rejected ones."`
	Refused  int64 `json:"refused" doc:"Rejected requests (4xx), such as those over a limit."`
	Failed   int64 `json:"failed"`
}

type usedNow struct {
	Inflight int64                `json:"inflight" doc:"In-flight requests on this gateway."`
	Day      spentView            `json:"day" doc:"Usage of the current UTC day."`
	Month    spentView            `json:"month" doc:"Usage of the current UTC month."`
	Limits   []decisions.LimitUse `json:"limits" nullable:"false" doc:"Usage of each limit that is set. While Redis is used, rates and concurrent have the usage of this gateway only."`
}

type spentView struct {
	Tokens int64         `json:"tokens"`
	Money  tenants.Money `json:"money"`
}

// tenantAnswer has no list and no counts of keys: on SQLite, counting 500,000 keys takes seconds.
type tenantAnswer struct {
	Tenant   tenants.Tenant `json:"tenant" doc:"The tenant, without its keys."`
	Key      *keyView       `json:"key,omitempty"`
	Secret   string         `json:"secret,omitempty" doc:"The key itself. No other answer shows it again."`
	Warnings []string       `json:"warnings,omitempty" doc:"Settings that have no effect with the configuration in force."`
}

// withEffectiveSettings returns the tenant with its effective settings.
func withEffectiveSettings(t tenants.Tenant) tenants.Tenant {
	t.Weight, t.Default = max(1, t.Weight), max(t.Default, t.Priority)
	return t
}

// showTenant returns the tenant with its effective settings and its keys.
func showTenant(t tenants.Tenant, own *ownKeys, now time.Time) tenantView {
	list := mapped(own.list, func(k tenants.Key) keyView { return showKey(k, now) })
	return tenantView{Tenant: withEffectiveSettings(t), List: list, States: own.states,
		Keys: own.states.Active + own.states.Grace, LastUsed: own.lastUsed}
}

func (a *tenantAPI) listTenants(ctx context.Context, in *struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"50" doc:"Maximum number of items."`
	Cursor string `query:"cursor" maxLength:"200" doc:"next_cursor of the previous page."`
	Search string `query:"q" maxLength:"100" doc:"Only items with this text in their name."`
	Today  bool   `query:"today" doc:"Also return the requests of the current UTC day, which the database counts."`
}) (*reply[page[tenantView]], error) {
	now := time.Now()
	name := func(t *tenants.Tenant) string { return t.Name }
	all := slices.Collect(a.control.Snapshot().Identity.Directory.Tenants())
	selected := paged(all, PageQuery{in.Limit, in.Cursor, in.Search}, name, name)
	keys := a.keysOf(ctx, now, mapped(selected.Items, func(t tenants.Tenant) string { return t.Name })...)
	today := map[string]store.UsageRow(nil)
	if in.Today {
		today = a.usageToday(ctx, now)
	}
	items := mapped(selected.Items, func(t tenants.Tenant) tenantView {
		v := showTenant(t, keys[t.Name], now)
		v.Now = *a.usedNow(t.Name, "", t.Limits, now)
		if today != nil {
			u := today[t.Name]
			v.Today = &dayUsage{Requests: u.Requests, Refused: u.Refused, Failed: u.Failed}
		}
		return v
	})
	return &reply[page[tenantView]]{Body: page[tenantView]{Items: items, Next: selected.Next, Total: selected.Total}}, nil
}

// usageToday returns the usage of the current UTC day by tenant, or nil while the database is unavailable.
func (a *tenantAPI) usageToday(ctx context.Context, now time.Time) map[string]store.UsageRow {
	if a.control.Stores.SQL == nil {
		return nil
	}
	var usage map[string]store.UsageRow
	if err := a.readDatabase("reading today's usage failed", func(db *store.SQL) (err error) {
		usage, err = db.UsageByTenant(ctx, now)
		return err
	}); err != nil {
		return nil
	}
	return usage
}

func (a *tenantAPI) getTenant(ctx context.Context, in *TenantPath) (*tagged[tenantView], error) {
	t, err := a.tenant(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	v := showTenant(t, a.keysOf(ctx, now, t.Name)[t.Name], now)
	v.Now = *a.usedNow(t.Name, "", t.Limits, now)
	return &tagged[tenantView]{ETag: etag(t.Version), Body: v}, nil
}

func (a *tenantAPI) createTenant(ctx context.Context, in *struct {
	Body json.RawMessage
}) (*tagged[tenantAnswer], error) {
	c, err := merged(tenantCreate{}, in.Body)
	if err == nil {
		err = a.checkRights(c.Rights, tenants.Rights{}, in.Body)
	}
	if err == nil {
		err = checkName("body.key_name", c.KeyName)
	}
	if err == nil && !tenants.Slug(c.Name) {
		err = invalid("body.name", "is the name of requests without a key: choose another name", c.Name)
	}
	if err != nil {
		return nil, err
	}
	if t, known := a.control.Snapshot().Identity.Directory.Tenant(c.Name); known && t.FromConfig {
		return nil, a.failed("creating a tenant", store.ErrExists) // the database has no tenants of config.yaml
	}
	c.Tenant.Name = c.Name
	made, err := a.control.Stores.SQL.CreateTenant(ctx, actorOf(ctx), c.Tenant)
	if err != nil {
		return nil, a.failed("creating a tenant", err)
	}
	answer := tenantAnswer{Tenant: withEffectiveSettings(made),
		Warnings: ineffectiveSettings(a.control.Snapshot().File, made.Rights, made.Limits)}
	if c.IssueKey {
		key, secret, err := a.createKeyWithSecret(ctx, tenants.Key{Tenant: made.Name, Name: c.KeyName})
		if err != nil {
			a.control.Changed(ctx)
			return nil,
				a.failed("creating the tenant's key", fmt.Errorf("the tenant %s was created, its key was not: %w", made.Name, err))
		}
		answer.Key, answer.Secret = new(showKey(key, time.Now())), secret
	}
	a.control.Changed(ctx)
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
			err = a.checkRights(changed.Rights, t.Rights, in.Body)
		}
		if err != nil {
			return t, err
		}
		return a.control.Stores.SQL.UpdateTenant(ctx, actorOf(ctx), changed, t.Version)
	})
	if err != nil {
		return nil, a.failed("changing a tenant", err)
	}
	return &tagged[tenantAnswer]{ETag: etag(made.Version),
		Body: tenantAnswer{Tenant: withEffectiveSettings(made),
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
