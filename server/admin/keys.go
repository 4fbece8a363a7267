package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"tierway/store"
	"tierway/tenants"
)

// KeySettings is what may be changed of a key.
type KeySettings struct {
	Name string `json:"name" required:"false" nullable:"true" maxLength:"100" doc:"For people: what the key is used in."`
	RightsSettings
	Limits    tenants.Limits `json:"limits" required:"false" doc:"Of this key, besides its tenant's; absent: none."`
	ExpiresAt *time.Time     `json:"expires_at" required:"false" nullable:"true" doc:"Absent: never."`
}

type keyView struct {
	ID     string `json:"id"`
	Tenant string `json:"tenant"`
	Hint   string `json:"hint" doc:"First and last characters, to tell keys apart."`
	State  string `json:"state" enum:"active,grace,expired,revoked" doc:"grace: replaced by a rotation and still good."`
	KeySettings
	CreatedBy  string     `json:"created_by,omitempty"`
	CreatedAt  *time.Time `json:"created_at,omitempty"`
	RevokedAt  *time.Time `json:"revoked_at,omitempty"`
	LastUsedAt *time.Time `json:"last_used_at,omitempty" doc:"To the minute."`
	ReplacedBy string     `json:"replaced_by,omitempty" doc:"The id of the key that a rotation put in its place."`
	FromConfig bool       `json:"from_config" doc:"It stands in config.yaml and is changed there."`
	Version    int64      `json:"version"`
	Now        *usedNow   `json:"now,omitempty" doc:"What this gateway knows to be used; in the answer for one key."`
}

type keyAnswer struct {
	Key      keyView  `json:"key"`
	Secret   string   `json:"secret,omitempty" doc:"The key itself. It is shown here and nowhere again."`
	Replaced *keyView `json:"replaced,omitempty" doc:"The key in whose place it is."`
	Warnings []string `json:"warnings,omitempty" doc:"What of the settings does nothing with the configuration in force, and whose settings count."`
}

func keySettings(k tenants.Key) KeySettings {
	return KeySettings{Name: k.Name, RightsSettings: RightsSettings(k.Rights), Limits: k.Limits, ExpiresAt: optional(k.ExpiresAt)}
}

// key returns the key with the settings.
func (s KeySettings) key(k tenants.Key) tenants.Key {
	k.Name, k.Rights, k.Limits, k.ExpiresAt = s.Name, tenants.Rights(s.RightsSettings), s.Limits, pointed(s.ExpiresAt)
	return k
}

// check returns what is wrong with the settings beyond their form, where patch is
// what was sent.
func (s KeySettings) check(patch json.RawMessage, now time.Time) error {
	if err := s.RightsSettings.check(patch); err != nil {
		return err
	}
	if err := checkName("body.name", s.Name); err != nil {
		return err
	}
	if s.ExpiresAt != nil && !s.ExpiresAt.After(now) {
		return invalid("body.expires_at", "it is over already: give a time to come, or revoke the key", s.ExpiresAt)
	}
	return nil
}

func showKey(k tenants.Key, now time.Time) keyView {
	settings := keySettings(k)
	settings.RightsSettings = settings.inEffect()
	return keyView{ID: k.ID, Tenant: k.Tenant, Hint: k.Hint, State: k.State(now), KeySettings: settings, CreatedBy: k.CreatedBy,
		CreatedAt: optional(k.CreatedAt), RevokedAt: optional(k.RevokedAt), LastUsedAt: optional(k.LastUsedAt),
		ReplacedBy: k.ReplacedBy, FromConfig: k.FromConfig, Version: k.Version}
}

func (a *Plane) listKeys(_ context.Context, in *struct {
	TenantPath
	PageQuery
}) (*reply[page[keyView]], error) {
	if _, err := a.tenant(in.Name); err != nil {
		return nil, err
	}
	_, ks, _, _ := a.control.TenantsNow()
	var views []keyView
	for _, k := range ks {
		if k.Tenant == in.Name {
			views = append(views, showKey(k, time.Now()))
		}
	}
	id, name := func(k *keyView) string { return k.ID }, func(k *keyView) string { return k.Name }
	return &reply[page[keyView]]{Body: paged(views, in.PageQuery, id, name)}, nil
}

func (a *Plane) getKey(_ context.Context, in *IDPath) (*tagged[keyView], error) {
	k, err := a.key(in.ID)
	if err != nil {
		return nil, err
	}
	v := showKey(k, time.Now())
	v.Now = a.usedNow(k.Tenant, k.ID, time.Now())
	return &tagged[keyView]{ETag: etag(k.Version), Body: v}, nil
}

func (a *Plane) createKey(ctx context.Context, in *struct {
	TenantPath
	Body json.RawMessage
}) (*tagged[keyAnswer], error) {
	settings, err := merged(KeySettings{}, in.Body)
	if err != nil {
		return nil, err
	}
	if err := settings.check(in.Body, time.Now()); err != nil {
		return nil, err
	}
	t, err := a.tenant(in.Name)
	if err != nil {
		return nil, err
	}
	warnings := []string{}
	if t.FromConfig {
		// A key stands in the database beside a tenant, whose settings the file has.
		if _, err := a.control.Stores.SQL.CreateTenant(ctx, actorOf(ctx), tenants.Tenant{Name: in.Name}); err != nil && !errors.Is(err, store.ErrExists) {
			return nil, a.failed("making a tenant", err)
		}
		warnings = append(warnings, fmt.Sprintf("the tenant %q stands in config.yaml: what it may use and its limits are those of the file", in.Name))
	}
	k, secret, err := a.mint(ctx, settings.key(tenants.Key{Tenant: in.Name}))
	if err != nil {
		return nil, a.failed("making a key", err)
	}
	a.control.Database.Changed(ctx)
	return &tagged[keyAnswer]{ETag: etag(k.Version), Body: keyAnswer{Key: showKey(k, time.Now()), Secret: secret,
		Warnings: append(warnings, advice(a.control.Snapshot().File, k.Rights, k.Limits)...)}}, nil
}

func (a *Plane) updateKey(ctx context.Context, in *struct {
	IDPath
	Precondition
	Body json.RawMessage
}) (*tagged[keyAnswer], error) {
	var made tenants.Key
	err := a.changeKey(ctx, in.ID, in.IfMatch, func(k tenants.Key) error {
		if !k.Valid(time.Now()) {
			return over(k, time.Now())
		}
		settings, err := merged(keySettings(k), in.Body)
		if err == nil {
			err = settings.check(in.Body, time.Now())
		}
		if err != nil {
			return err
		}
		made, err = a.control.Stores.SQL.UpdateKey(ctx, actorOf(ctx), settings.key(k), k.Version)
		return err
	})
	if err != nil {
		return nil, a.failed("changing a key", err)
	}
	return &tagged[keyAnswer]{ETag: etag(made.Version), Body: keyAnswer{Key: showKey(made, time.Now()),
		Warnings: advice(a.control.Snapshot().File, made.Rights, made.Limits)}}, nil
}
