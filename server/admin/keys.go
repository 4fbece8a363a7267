package admin

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"tierway/store"
	"tierway/tenants"
)

// KeySettings describes the fields of a key that may be changed.
type KeySettings keyView

// TransformSchema implements huma.SchemaTransformer.
func (KeySettings) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	return keepOnly(s, "name", "tiers", "models", "priority", "default_priority", "limits", "expires_at")
}

type keyView struct {
	tenants.Key
	Name      string     `json:"name" required:"false" nullable:"true" maxLength:"100" doc:"Label that says where the key is used."`
	ExpiresAt *time.Time `json:"expires_at" required:"false" nullable:"true" doc:"Time at which the key expires. null, or absent in a new key: never."`
	State     string     `json:"state" enum:"active,grace,expired,revoked" doc:"grace: replaced by a rotation, but still valid."`
	Now       *usedNow   `json:"now,omitempty" doc:"Current usage as this gateway knows it. Only in the answer for one key."`
}

type keyAnswer struct {
	Key      keyView  `json:"key"`
	Secret   string   `json:"secret,omitempty" doc:"The key itself. No other answer shows it again."`
	Replaced *keyView `json:"replaced,omitempty" doc:"The key that was replaced."`
	Warnings []string `json:"warnings,omitempty" doc:"Settings that have no effect with the configuration in force, and settings that config.yaml overrides."`
}

// mergedKey returns k with a merge patch of its settings. It also checks their values.
func (a *tenantAPI) mergedKey(k tenants.Key, patch json.RawMessage, now time.Time) (tenants.Key, error) {
	stored := k.Rights
	k, err := merged(k, patch)
	if err == nil {
		err = a.checkRights(k.Rights, stored, patch)
	}
	if err == nil {
		err = checkName("body.name", k.Name)
	}
	if err == nil && !k.ExpiresAt.IsZero() && !k.ExpiresAt.After(now) {
		err = invalid("body.expires_at", "the time has passed: send a future time, or revoke the key", k.ExpiresAt)
	}
	return k, err
}

func showKey(k tenants.Key, now time.Time) keyView {
	k.Default = max(k.Default, k.Priority)
	return keyView{Key: k, Name: k.Name, ExpiresAt: optional(k.ExpiresAt), State: k.State(now)}
}

func (a *tenantAPI) listKeys(ctx context.Context, in *struct {
	TenantPath
	PageQuery
}) (*reply[page[keyView]], error) {
	if _, err := a.tenant(ctx, in.Name); err != nil {
		return nil, err
	}
	return &reply[page[keyView]]{Body: a.pageOfKeys(ctx, in.Name, in.PageQuery)}, nil
}

// pageOfKeys returns a page of the keys of a tenant, those of config.yaml among them. While the database is
// unavailable, the directory has the others.
func (a *tenantAPI) pageOfKeys(ctx context.Context, tenant string, q PageQuery) page[keyView] {
	directory, now := a.control.Snapshot().Identity.Directory, time.Now()
	keys, elsewhere := slices.Collect(directory.FileKeys()), 0 // in the database, on other pages
	if a.control.Stores.SQL != nil {
		err := a.readDatabase("reading keys of the database failed; those in memory are used", func(db *store.SQL) error {
			more := store.KeyQuery{Tenant: tenant, Search: q.Search, After: q.Cursor, Limit: q.Limit + 1}
			stored, total, err := db.KeyPage(ctx, more)
			keys, elsewhere = append(keys, stored...), int(total)-len(stored)
			return err
		})
		if err != nil {
			keys, elsewhere = slices.AppendSeq(keys, directory.StoredKeys()), 0
		}
	}
	keys = slices.DeleteFunc(keys, func(k tenants.Key) bool { return k.Tenant != tenant })
	p := paged(keys, q, func(k *tenants.Key) string { return k.ID }, func(k *tenants.Key) string { return k.Name })
	show := func(k tenants.Key) keyView { return showKey(a.withLastUse(k), now) }
	return page[keyView]{Items: mapped(p.Items, show), Next: p.Next, Total: p.Total + elsewhere}
}

func (a *tenantAPI) getKey(ctx context.Context, in *IDPath) (*tagged[keyView], error) {
	k, err := a.key(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if !k.FromConfig {
		_ = a.readDatabase("reading when a key was last used failed", func(db *store.SQL) (err error) {
			k.LastUsedAt, err = db.KeyLastUsed(ctx, k.ID)
			return err
		})
	}
	v := showKey(a.withLastUse(k), time.Now())
	v.Now = a.usedNow(k.Tenant, k.ID, k.Limits, time.Now())
	return &tagged[keyView]{ETag: etag(k.Version), Body: v}, nil
}

func (a *tenantAPI) createKey(ctx context.Context, in *struct {
	TenantPath
	Body json.RawMessage
}) (*tagged[keyAnswer], error) {
	wanted, err := a.mergedKey(tenants.Key{Tenant: in.Name}, in.Body, time.Now())
	if err != nil {
		return nil, err
	}
	t, err := a.tenant(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	warnings := []string{}
	if t.FromConfig {
		// The database needs a tenant for the key. The settings of the file apply.
		if _, err := a.control.Stores.SQL.CreateTenant(ctx, actorOf(ctx), tenants.Tenant{Name: in.Name}); err != nil &&
			!errors.Is(err, store.ErrExists) {
			return nil, a.failed("creating a tenant", err)
		}
		warnings = append(warnings,
			fmt.Sprintf("the tenant %q is defined in config.yaml: the permissions and limits of the file apply", in.Name))
	}
	k, secret, err := a.createKeyWithSecret(ctx, wanted)
	if err != nil {
		return nil, a.failed("creating a key", err)
	}
	a.control.Changed(ctx)
	return &tagged[keyAnswer]{ETag: etag(k.Version), Body: keyAnswer{Key: showKey(k, time.Now()), Secret: secret,
		Warnings: append(warnings, a.keyWarnings(ctx, &k)...)}}, nil
}

func (a *tenantAPI) updateKey(ctx context.Context, in *struct {
	IDPath
	Precondition
	Body json.RawMessage
}) (*tagged[keyAnswer], error) {
	made, err := a.changeKey(ctx, in.ID, in.IfMatch, func(k tenants.Key) (tenants.Key, error) {
		if !k.Valid(time.Now()) {
			return k, invalidKey(k, time.Now())
		}
		changed, err := a.mergedKey(k, in.Body, time.Now())
		if err != nil {
			return k, err
		}
		return a.control.Stores.SQL.UpdateKey(ctx, actorOf(ctx), changed, k.Version)
	})
	if err != nil {
		return nil, a.failed("changing a key", err)
	}
	return &tagged[keyAnswer]{ETag: etag(made.Version), Body: keyAnswer{Key: showKey(made, time.Now()),
		Warnings: a.keyWarnings(ctx, &made)}}, nil
}

// keyWarnings returns warnings about settings of a key without an effect.
func (a *tenantAPI) keyWarnings(ctx context.Context, k *tenants.Key) []string {
	out := ineffectiveSettings(a.control.Snapshot().File, k.Rights, k.Limits)
	if t, err := a.tenant(ctx, k.Tenant); err == nil {
		for _, tier := range k.Tiers {
			if t.Tiers != nil && !slices.Contains(t.Tiers, tier) {
				out = append(out, fmt.Sprintf("tiers: %q has no effect: the tenant may not use it", tier))
			}
		}
	}
	return out
}

type keyRotation struct {
	Grace int64 `json:"grace_s,omitempty" minimum:"0" maximum:"604800" doc:"Seconds for which the old key stays valid, at most 7 days. Absent: the old key is invalid at once."`
}

type keyRevocation struct {
	Reason string `json:"reason,omitempty" maxLength:"200" doc:"Reason that the audit log shows."`
}

func (a *tenantAPI) rotateKey(ctx context.Context, in *struct {
	IDPath
	Precondition
	Body *keyRotation
}) (*tagged[keyAnswer], error) {
	secret, next, err := tenants.Mint(rand.Reader, "") // the tenant comes from the old key
	if err != nil {
		return nil, a.failed("creating a key", err)
	}
	next.CreatedBy = actorOf(ctx).Name
	var grace time.Duration
	if in.Body != nil {
		grace = time.Duration(in.Body.Grace) * time.Second
	}
	var old tenants.Key
	now := time.Now()
	made, err := a.changeKey(ctx, in.ID, in.IfMatch, func(k tenants.Key) (made tenants.Key, err error) {
		switch {
		case !k.Valid(now):
			return k, invalidKey(k, now)
		case k.ReplacedBy != "":
			return k,
				huma.Error409Conflict(fmt.Sprintf("The key was already replaced by the key %s. Rotate that key instead.",
					k.ReplacedBy))
		}
		if old, made, err = a.control.Stores.SQL.RotateKey(ctx, actorOf(ctx), k.ID, next, grace, now); err != nil {
			err = a.failed("rotating a key", err) // includes a conflict: another gateway replaced the key
		}
		return made, err
	})
	if err != nil {
		return nil, a.failed("rotating a key", err)
	}
	return &tagged[keyAnswer]{ETag: etag(made.Version),
		Body: keyAnswer{Key: showKey(made, now), Secret: secret, Replaced: new(showKey(old, now))}}, nil
}

// invalidKey returns the answer to a change of a key that is expired or revoked.
func invalidKey(k tenants.Key, now time.Time) error {
	return huma.Error409Conflict(fmt.Sprintf("The key is %s and cannot be changed. Create a new key.", k.State(now)))
}

func (a *tenantAPI) revokeKey(ctx context.Context, in *struct {
	IDPath
	Precondition
	Body *keyRevocation
}) (*tagged[keyAnswer], error) {
	reason := ""
	if in.Body != nil {
		reason = in.Body.Reason
	}
	made, err := a.changeKey(ctx, in.ID, in.IfMatch, func(k tenants.Key) (tenants.Key, error) {
		return a.control.Stores.SQL.RevokeKey(ctx, actorOf(ctx), k.ID, reason, time.Now())
	})
	if err != nil {
		return nil, a.failed("revoking a key", err)
	}
	return &tagged[keyAnswer]{ETag: etag(made.Version), Body: keyAnswer{Key: showKey(made, time.Now())}}, nil
}
