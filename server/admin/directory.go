package admin

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/danielgtaylor/huma/v2"

	"tierway/config"
	"tierway/store"
	"tierway/tenants"
)

// stored is the state of a tenant or key that decides whether it may be changed.
type stored struct {
	what, name string
	fromConfig bool
	version    int64
}

// tenantAPI changes tenants and their keys.
type tenantAPI struct {
	*gateway
	changing sync.Mutex // changes of this gateway never lose to each other
}

func (a *tenantAPI) key(id string) (tenants.Key, error) {
	_, ks := a.control.Snapshot().Identity.Tenants()
	return find(ks, "key", id, func(k tenants.Key) bool { return k.ID == id })
}

// changeTenant changes a tenant of the database by f, at the version that If-Match asks for.
func (a *tenantAPI) changeTenant(ctx context.Context, name, ifMatch string, f func(tenants.Tenant) (tenants.Tenant, error)) (tenants.Tenant, error) {
	return changeStored(ctx, a, ifMatch, func() (tenants.Tenant, stored, error) {
		t, err := a.tenant(name)
		return t, stored{"tenant", name, t.FromConfig, t.Version}, err
	}, f)
}

// changeKey changes a key of the database by f, at the version that If-Match asks for.
func (a *tenantAPI) changeKey(ctx context.Context, id, ifMatch string, f func(tenants.Key) (tenants.Key, error)) (tenants.Key, error) {
	return changeStored(ctx, a, ifMatch, func() (tenants.Key, stored, error) {
		k, err := a.key(id)
		return k, stored{"key", id, k.FromConfig, k.Version}, err
	}, f)
}

// changeStored changes by f what find finds in memory, which another gateway may have
// changed since. With If-Match the change fails then; without, the database is read again
// and the change repeated.
func changeStored[T any](ctx context.Context, a *tenantAPI, ifMatch string, find func() (T, stored, error), f func(T) (T, error)) (made T, err error) {
	match, err := tagOf(ifMatch)
	if err != nil {
		return made, err
	}
	if match == 0 { // what stands in config.yaml has version 0, and is not changed here
		return made, store.ErrConflict
	}
	a.changing.Lock()
	defer a.changing.Unlock()
	const tries = 3 // each loses only to another gateway's change in the same millisecond
	for range tries {
		v, is, err := find()
		if err == nil && !is.fromConfig && match != anyVersion {
			if err = a.control.Database.Read(ctx); err == nil {
				v, is, err = find()
			}
		}
		switch {
		case err != nil:
			return made, err
		case is.fromConfig:
			return made, fromConfig(is.what, is.name)
		case !match.is(is.version):
			return made, store.ErrConflict
		}
		if made, err = f(v); err == nil {
			a.control.Database.Changed(ctx)
			return made, nil
		}
		if !errors.Is(err, store.ErrConflict) || match != anyVersion {
			return made, err
		}
		if err = a.control.Database.Read(ctx); err != nil {
			return made, err
		}
	}
	return made, store.ErrConflict
}

func (a *tenantAPI) mint(ctx context.Context, k tenants.Key) (tenants.Key, string, error) {
	secret, made, err := tenants.Mint(rand.Reader, k.Tenant)
	if err != nil {
		return k, "", err
	}
	k.ID, k.Hint, k.Digest, k.CreatedBy = made.ID, made.Hint, made.Digest, actorOf(ctx).Name
	k, err = a.control.Stores.SQL.CreateKey(ctx, actorOf(ctx), k)
	return k, secret, err
}

// usedNow asks the limiter of this process, which knows at least what passed
// through it.
func (a *tenantAPI) usedNow(tenant, key string, now time.Time) *usedNow {
	local := a.control.Stores.Limiter
	day, month := local.Spent(tenant, key, now)
	return &usedNow{Inflight: local.Inflight(tenant, key), Day: spentView(day), Month: spentView(month)}
}

// checkRights returns what is wrong with rights beyond their form, where patch is
// what was sent: a default above priority, if it was sent so, and names that no
// tier or model can have.
func checkRights(r tenants.Rights, patch json.RawMessage) error {
	sent, err := object(patch)
	if err != nil {
		return err
	}
	if sent["default_priority"] != nil && r.Default < r.Priority {
		return invalid("body.default_priority", fmt.Sprintf("%s is above priority, which is %s: at most that", r.Default, r.Priority), sent["default_priority"])
	}
	for field, names := range map[string][]string{"tiers": r.Tiers, "models": r.Models} {
		for i, name := range names {
			if name == "" || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
				return invalid(fmt.Sprintf("body.%s[%d]", field, i), "expected a name of printable characters", name)
			}
		}
	}
	return nil
}

// checkName returns an error for a key's name that a terminal or a log would act
// upon.
func checkName(location, name string) error {
	if strings.ContainsFunc(name, unicode.IsControl) {
		return invalid(location, "expected no control characters", name)
	}
	return nil
}

// limitSettings describes tenants.Limits in the OpenAPI document: the fields are
// the same, and so are the bounds of config.yaml.
type limitSettings struct {
	_           struct{} `nullable:"true"`
	RPM         int64    `json:"rpm,omitempty" nullable:"true" minimum:"0" maximum:"1000000000" doc:"Requests a minute."`
	RPS         int64    `json:"rps,omitempty" nullable:"true" minimum:"0" maximum:"1000000000" doc:"Requests a second."`
	Burst       int64    `json:"burst,omitempty" nullable:"true" minimum:"0" maximum:"1000000000" doc:"Requests at once; absent: a sixth of rpm, or one second of rps."`
	TPM         int64    `json:"tpm,omitempty" nullable:"true" minimum:"0" maximum:"1000000000000000" doc:"Tokens a minute, of prompts and answers."`
	TokenBurst  int64    `json:"token_burst,omitempty" nullable:"true" minimum:"0" maximum:"1000000000000000" doc:"Tokens at once; absent: a minute of tpm."`
	Concurrent  int64    `json:"concurrent,omitempty" nullable:"true" minimum:"0" maximum:"1000000000" doc:"Requests under way."`
	DayTokens   int64    `json:"day_tokens,omitempty" nullable:"true" minimum:"0" maximum:"1000000000000000" doc:"Tokens a UTC day."`
	MonthTokens int64    `json:"month_tokens,omitempty" nullable:"true" minimum:"0" maximum:"1000000000000000" doc:"Tokens a UTC month."`
	DayMoney    amount   `json:"day_money,omitempty" doc:"Money a UTC day, in units with at most 9 decimals."`
	MonthMoney  amount   `json:"month_money,omitempty" doc:"Money a UTC month, in units with at most 9 decimals."`
}

// amount describes tenants.Money in the OpenAPI document.
type amount int64

// Schema returns what a client may send: a number of units that ParseMoney takes.
func (amount) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeNumber, Nullable: true, Minimum: new(0.0), Maximum: new(1e9)}
}

// merged returns current with a JSON merge patch (RFC 7396) applied: what is null
// goes back to its default, what is left out stays.
func merged[T any](current T, patch json.RawMessage) (T, error) {
	var changed T
	text, err := json.Marshal(current)
	if err != nil {
		return changed, fmt.Errorf("writing what is there: %w", err)
	}
	base, err := object(text)
	if err != nil {
		return changed, err
	}
	change, err := object(patch)
	if err != nil {
		return changed, err
	}
	mergePatch(base, change)
	if text, err = json.Marshal(base); err != nil {
		return changed, fmt.Errorf("writing what it becomes: %w", err)
	}
	if err = json.Unmarshal(text, &changed); err != nil {
		return changed, huma.Error422UnprocessableEntity("validation failed", &huma.ErrorDetail{Location: "body", Message: err.Error()})
	}
	return changed, nil
}

// object reads a JSON object and keeps its numbers as they are written.
func object(text []byte) (m map[string]any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err = d.Decode(&m); err != nil {
		return nil, fmt.Errorf("reading an object: %w", err)
	}
	return m, nil
}

func mergePatch(base, change map[string]any) {
	for name, value := range change {
		switch v := value.(type) {
		case nil:
			delete(base, name)
		case map[string]any:
			below, ok := base[name].(map[string]any)
			if !ok {
				below = map[string]any{}
				base[name] = below
			}
			mergePatch(below, v)
		default:
			base[name] = value
		}
	}
}

// advice says what of rights and limits does nothing with the configuration in
// force. None of it is an error: the configuration may come later.
func advice(f *config.File, r tenants.Rights, l tenants.Limits) []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	known, names, priced := map[string]bool{}, []string{}, false
	for _, p := range f.ResolvedPools() {
		known[p.Name] = true
		names = append(append(names, p.Name), p.Models...)
		priced = priced || p.Price.Input > 0 || p.Price.Output > 0 || p.Price.CachedInput != nil && *p.Price.CachedInput > 0
		for _, w := range p.Workers {
			names = append(names, w.Models...)
		}
	}
	for name := range f.Models {
		names = append(names, name)
	}
	for _, tier := range r.Tiers {
		if !known[tier] {
			say("tiers: %q is no tier or pool of the configuration in force", tier)
		}
	}
	for _, glob := range r.Models {
		if !matchesAny(glob, names) {
			say("models: %q matches no model of the configuration in force", glob)
		}
	}
	if l.Burst > 0 && l.RPM == 0 && l.RPS == 0 {
		say("limits.burst: does nothing without rpm or rps")
	}
	if l.TokenBurst > 0 && l.TPM == 0 {
		say("limits.token_burst: does nothing without tpm")
	}
	if (l.DayMoney > 0 || l.MonthMoney > 0) && !priced {
		say("limits: a budget of money is never spent: no tier or pool has a price")
	}
	return out
}

// matchesAny tells whether a glob takes one of the names. Names that are globs
// themselves, as aliases may be, count where they are the same.
func matchesAny(glob string, names []string) bool {
	c := tenants.NewCaller(tenants.Tenant{Rights: tenants.Rights{Models: []string{glob}}}, tenants.Key{})
	for _, name := range names {
		if name == glob || c.MayUseModel(name) {
			return true
		}
	}
	return false
}

// optional returns nil for the zero time, which JSON has no word for.
func optional(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
