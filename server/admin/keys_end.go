package admin

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"tierway/store"
	"tierway/tenants"
)

// KeyRotation says how a key is replaced.
type KeyRotation struct {
	Grace int64 `json:"grace_s,omitempty" minimum:"0" maximum:"604800" doc:"Seconds for which the old key goes on working, up to 7 days; absent: none."`
}

// KeyRevocation says why a key is ended.
type KeyRevocation struct {
	Reason string `json:"reason,omitempty" maxLength:"200" doc:"For the audit log."`
}

func (a *Plane) rotateKey(ctx context.Context, in *struct {
	ID      string `path:"id" maxLength:"63"`
	IfMatch string `header:"If-Match" doc:"The ETag that the change is based on."`
	Body    *KeyRotation
}) (*tagged[KeyAnswer], error) {
	secret, next, err := tenants.Mint(rand.Reader, "") // the tenant is the old key's
	if err != nil {
		return nil, a.failed("making a key", err)
	}
	next.CreatedBy = actorOf(ctx).Name
	var grace time.Duration
	if in.Body != nil {
		grace = time.Duration(in.Body.Grace) * time.Second
	}
	var old, made tenants.Key
	now := time.Now()
	err = a.onKey(ctx, in.ID, in.IfMatch, func(k tenants.Key) error {
		switch {
		case !k.Valid(now):
			return over(k, now)
		case k.ReplacedBy != "":
			return huma.Error409Conflict(fmt.Sprintf("The key was replaced already, by %s. Rotate that one.", k.ReplacedBy))
		}
		var err error
		old, made, err = a.Control.Stores.SQL.RotateKey(ctx, actorOf(ctx), k.ID, next, grace, now)
		return err
	})
	if err != nil {
		return nil, a.failed("rotating a key", err)
	}
	return &tagged[KeyAnswer]{ETag: etag(made.Version), Body: KeyAnswer{Key: keyView(made, now), Secret: secret, Replaced: new(keyView(old, now))}}, nil
}

// onKey ends or replaces a key of the database by f, at the version that If-Match
// asks for.
func (a *Plane) onKey(ctx context.Context, id, ifMatch string, f func(k tenants.Key) error) error {
	want, err := expected(ifMatch)
	if err != nil {
		return err
	}
	a.changing.Lock()
	defer a.changing.Unlock()
	k, err := a.keyOf(id)
	if err == nil && !k.FromConfig && want != 0 { // memory may be behind another gateway's change
		if err = a.Control.Database.Read(ctx); err == nil {
			k, err = a.keyOf(id)
		}
	}
	switch {
	case err != nil:
		return err
	case k.FromConfig:
		return fromConfig("key", id)
	case want != 0 && k.Version != want:
		return store.ErrConflict
	}
	if err := f(k); err != nil {
		return err
	}
	a.Control.Database.Changed(ctx)
	return nil
}

// over is the answer to a change of a key that is of no use any more.
func over(k tenants.Key, now time.Time) error {
	return huma.Error409Conflict(fmt.Sprintf("The key is %s and stays so. Make another.", k.State(now)))
}

func (a *Plane) revokeKey(ctx context.Context, in *struct {
	ID      string `path:"id" maxLength:"63"`
	IfMatch string `header:"If-Match" doc:"The ETag that the change is based on."`
	Body    *KeyRevocation
}) (*tagged[KeyAnswer], error) {
	reason := ""
	if in.Body != nil {
		reason = in.Body.Reason
	}
	var made tenants.Key
	err := a.onKey(ctx, in.ID, in.IfMatch, func(k tenants.Key) (err error) {
		made, err = a.Control.Stores.SQL.RevokeKey(ctx, actorOf(ctx), k.ID, reason, time.Now())
		return err
	})
	if err != nil {
		return nil, a.failed("revoking a key", err)
	}
	return &tagged[KeyAnswer]{ETag: etag(made.Version), Body: KeyAnswer{Key: keyView(made, time.Now())}}, nil
}
