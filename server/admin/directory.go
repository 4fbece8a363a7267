package admin

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/danielgtaylor/huma/v2"

	"tierway/config"
	"tierway/decisions"
	"tierway/server/control"
	"tierway/store"
	"tierway/tenants"
)

// stored is the state of a tenant or key that determines whether it may be changed.
type stored struct {
	what, name string
	fromConfig bool
	version    int64
}

type tenantAPI struct {
	*gateway
	changing    sync.Mutex // serializes the changes of this gateway, so that they never conflict
	failedReads sync.Map   // messages of readDatabase that are logged, until the same read succeeds
}

// keysListed is the maximum number of keys in the view of a tenant. The list of its keys has all, in pages.
const keysListed = 1000

// ownKeys are the keys of a tenant.
type ownKeys struct {
	list     []tenants.Key // the first ones by id, with the times of their last uses
	states   keyStates     // of all
	lastUsed time.Time     // of all
}

// keysOf returns the keys of some tenants. While the database is unavailable, the directory has the keys, and the times
// of last uses are those on this gateway.
func (a *tenantAPI) keysOf(ctx context.Context, now time.Time, names ...string) map[string]*ownKeys {
	directory := a.control.Snapshot().Identity.Directory
	of := make(map[string]*ownKeys, len(names))
	for _, name := range names {
		of[name] = &ownKeys{}
	}
	add := func(all iter.Seq[tenants.Key]) {
		for k := range all {
			if own := of[k.Tenant]; own != nil {
				own.states.add(&k, now)
				own.list = append(own.list, k)
			}
		}
	}
	add(directory.FileKeys())
	if a.control.Stores.SQL != nil {
		if err := a.addStoredKeys(ctx, now, names, of); err != nil {
			add(directory.StoredKeys())
		}
	}
	for _, own := range of {
		own.finish(a.withLastUse)
	}
	return of
}

// finish sorts and cuts the list, and adds the times of last uses.
func (o *ownKeys) finish(withLastUse func(tenants.Key) tenants.Key) {
	slices.SortFunc(o.list, func(a, b tenants.Key) int { return strings.Compare(a.ID, b.ID) })
	o.list = o.list[:min(len(o.list), keysListed)]
	for i := range o.list {
		o.list[i] = withLastUse(o.list[i])
		if used := o.list[i].LastUsedAt; used.After(o.lastUsed) {
			o.lastUsed = used
		}
	}
}

// addStoredKeys adds the keys of the database to those of some tenants. After an error it has added nothing.
func (a *tenantAPI) addStoredKeys(ctx context.Context, now time.Time, names []string, of map[string]*ownKeys) error {
	var counts []store.KeyCounts
	var first []tenants.Key
	const failed = "reading keys of the database failed; those in memory are used"
	err := a.readDatabase(failed, func(db *store.SQL) (err error) {
		if counts, err = db.CountKeys(ctx, now, expiringWithin, names...); err == nil {
			first, err = db.FirstKeysOf(ctx, keysListed, names...)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, c := range counts {
		own := of[c.Tenant]
		own.states.addCounts(&c)
		own.lastUsed = c.LastUsed
	}
	for _, k := range first {
		of[k.Tenant].list = append(of[k.Tenant].list, k)
	}
	return nil
}

// errDatabaseAway is the error of a read while the database is known to be unavailable.
var errDatabaseAway = errors.New("the database is unavailable")

// readDatabase reads from the database, which must be configured. It logs the first of several errors with the message.
// While the database is unavailable, which has a line of its own in the log, it returns an error at once.
func (a *tenantAPI) readDatabase(message string, read func(*store.SQL) error) error {
	if a.control.Database.State() == control.DatabaseAway {
		return errDatabaseAway
	}
	err := read(a.control.Stores.SQL)
	switch {
	case err == nil:
		a.failedReads.Delete(message)
	case errors.Is(err, context.Canceled): // the client has left
	default:
		if _, known := a.failedReads.LoadOrStore(message, true); !known {
			a.log.Warn(message, "cause", err.Error())
		}
	}
	return err
}

// withLastUse returns the key with the time of its last use on this gateway, if that is later.
func (a *tenantAPI) withLastUse(k tenants.Key) tenants.Key {
	if here := a.control.Database.LastUsed.At(k.ID); !k.FromConfig && here.After(k.LastUsedAt) {
		k.LastUsedAt = here.UTC()
	}
	return k
}

// key returns a key, also if another gateway has just created it.
func (a *tenantAPI) key(ctx context.Context, id string) (tenants.Key, error) {
	return upToDate(ctx, a.gateway, func() (tenants.Key, error) {
		k, known := a.control.Snapshot().Identity.Directory.Key(id)
		if !known {
			return k, notFound("key", id)
		}
		return k, nil
	})
}

// changeTenant changes a tenant of the database by f, if it has the version that If-Match requires.
func (a *tenantAPI) changeTenant(ctx context.Context, name, ifMatch string,
	f func(tenants.Tenant) (tenants.Tenant, error)) (tenants.Tenant, error) {
	return changeStored(ctx, a, ifMatch, func() (tenants.Tenant, stored, error) {
		t, err := a.tenant(ctx, name)
		return t, stored{"tenant", name, t.FromConfig, t.Version}, err
	}, f)
}

// changeKey changes a key of the database by f, if it has the version that If-Match requires.
func (a *tenantAPI) changeKey(ctx context.Context, id, ifMatch string,
	f func(tenants.Key) (tenants.Key, error)) (tenants.Key, error) {
	return changeStored(ctx, a, ifMatch, func() (tenants.Key, stored, error) {
		k, err := a.key(ctx, id)
		return k, stored{"key", id, k.FromConfig, k.Version}, err
	}, f)
}

// changeStored changes the object that find finds in memory by f. Another gateway may have changed
// it meanwhile: with If-Match the change then fails; without, the database is read again and the
// change is repeated.
func changeStored[T any](ctx context.Context, a *tenantAPI, ifMatch string, find func() (T, stored, error),
	f func(T) (T, error)) (made T, err error) {
	match, err := tagOf(ifMatch)
	if err != nil {
		return made, err
	}
	if match == 0 { // objects of config.yaml have version 0 and are read-only
		return made, store.ErrConflict
	}
	a.changing.Lock()
	defer a.changing.Unlock()
	const tries = 3 // a try fails only if another gateway changes the object in the same millisecond
	for range tries {
		value, state, err := find()
		if err == nil && !state.fromConfig && match != anyVersion {
			if err = a.control.Refresh(ctx); err == nil {
				value, state, err = find()
			}
		}
		switch {
		case err != nil:
			return made, err
		case state.fromConfig:
			return made, fromConfig(state.what, state.name)
		case !match.matches(state.version):
			return made, store.ErrConflict
		}
		if made, err = f(value); err == nil {
			a.control.Changed(ctx)
			return made, nil
		}
		if !errors.Is(err, store.ErrConflict) || match != anyVersion {
			return made, err
		}
		if err = a.control.Refresh(ctx); err != nil {
			return made, err
		}
	}
	return made, store.ErrConflict
}

func (a *tenantAPI) createKeyWithSecret(ctx context.Context, k tenants.Key) (tenants.Key, string, error) {
	secret, made, err := tenants.Mint(rand.Reader, k.Tenant)
	if err != nil {
		return k, "", err
	}
	k.ID, k.Hint, k.Digest, k.CreatedBy = made.ID, made.Hint, made.Digest, actorOf(ctx).Name
	k, err = a.control.Stores.SQL.CreateKey(ctx, actorOf(ctx), k)
	return k, secret, err
}

// usedNow returns the usage by the limiter of this process. It covers at least the requests of this
// gateway.
func (a *tenantAPI) usedNow(tenant, key string, limits tenants.Limits, now time.Time) *usedNow {
	local := a.control.Stores.Limiter
	day, month := local.Spent(tenant, key, now)
	used := &usedNow{Inflight: local.Inflight(tenant, key), Day: spentView(day), Month: spentView(month),
		Limits: []decisions.LimitUse{}}
	subject := tenants.Subject{Tenant: tenant, Key: key, Limits: limits}
	charge := tenants.Charge{Caller: &tenants.Caller{Tenant: tenant, Subjects: []tenants.Subject{subject}}, At: now}
	_, uses, _, err := a.control.Stores.Limits.Peek(&charge)
	if err != nil { // only a caller with FailClosed gets one
		return used
	}
	for _, u := range uses {
		use := decisions.LimitUse{Scope: u.Scope, Limit: u.Limit, Used: u.Used, Room: u.Capacity, Rate: u.Rate}
		if use.Money() {
			use.Used, use.Room = u.Used/float64(tenants.Unit), u.Capacity/float64(tenants.Unit)
		}
		used.Limits = append(used.Limits, use)
	}
	return used
}

// checkRights checks the values of rights; patch is the body that was sent, and stored has the rights before
// it. It returns an error for a default_priority above priority, if patch sets it, and for names that the
// configuration does not have. Stored names stay valid after their tier was removed, so that an object can be
// read and sent back.
func (a *tenantAPI) checkRights(r, stored tenants.Rights, patch json.RawMessage) error {
	sent, err := parseObject(patch)
	if err != nil {
		return err
	}
	if sent["default_priority"] != nil && r.Default < r.Priority {
		return invalid("body.default_priority",
			fmt.Sprintf("%s is above priority, which is %s: lower default_priority, or raise priority", r.Default, r.Priority),
			sent["default_priority"])
	}
	for field, names := range map[string][]string{"tiers": r.Tiers, "models": r.Models} {
		for i, name := range names {
			if name == "" || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
				return invalid(fmt.Sprintf("body.%s[%d]", field, i), "expected a name of printable characters", name)
			}
		}
	}
	was := map[string][]string{"tiers": stored.Tiers, "models": stored.Models}
	for _, u := range a.control.Snapshot().Base.RightNames().Unknown(r) {
		if !slices.Contains(was[u.Field], u.Name) {
			return invalid(fmt.Sprintf("body.%s[%d]", u.Field, u.Index), u.Problem+" of the configuration in force: "+u.Hint()+
				"; send null for all", u.Name)
		}
	}
	return nil
}

// checkName returns an error for a key's name with control characters, which terminals and logs
// interpret.
func checkName(location, name string) error {
	if strings.ContainsFunc(name, unicode.IsControl) {
		return invalid(location, "expected no control characters", name)
	}
	return nil
}

// limitSettings describes tenants.Limits in the OpenAPI document. It has the same fields, and the
// bounds of config.yaml.
type limitSettings struct {
	_           struct{} `nullable:"true"`
	RPM         int64    `json:"rpm,omitempty" nullable:"true" minimum:"0" maximum:"1000000000" doc:"Requests per minute."`
	RPS         int64    `json:"rps,omitempty" nullable:"true" minimum:"0" maximum:"1000000000" doc:"Requests per second."`
	Burst       int64    `json:"burst,omitempty" nullable:"true" minimum:"0" maximum:"1000000000" doc:"Requests that may arrive at once. Absent: a sixth of rpm, or one second of rps."`
	TPM         int64    `json:"tpm,omitempty" nullable:"true" minimum:"0" maximum:"1000000000000000" doc:"Tokens per minute, of prompts and answers."`
	TokenBurst  int64    `json:"token_burst,omitempty" nullable:"true" minimum:"0" maximum:"1000000000000000" doc:"Tokens that may be used at once. Absent: one minute of tpm."`
	Concurrent  int64    `json:"concurrent,omitempty" nullable:"true" minimum:"0" maximum:"1000000000" doc:"In-flight requests."`
	DayTokens   int64    `json:"day_tokens,omitempty" nullable:"true" minimum:"0" maximum:"1000000000000000" doc:"Tokens per UTC day."`
	MonthTokens int64    `json:"month_tokens,omitempty" nullable:"true" minimum:"0" maximum:"1000000000000000" doc:"Tokens per UTC month."`
	DayMoney    amount   `json:"day_money,omitempty" doc:"Money per UTC day, in currency units with at most 9 decimals."`
	MonthMoney  amount   `json:"month_money,omitempty" doc:"Money per UTC month, in currency units with at most 9 decimals."`
}

// amount describes tenants.Money in the OpenAPI document.
type amount int64

// Schema returns the schema of an amount that ParseMoney accepts, in currency units.
func (amount) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeNumber, Nullable: true, Minimum: new(0.0), Maximum: new(1e9)}
}

// merged returns current with a JSON merge patch (RFC 7396) applied: null resets a field to its
// default, and absent fields stay.
func merged[T any](current T, patch json.RawMessage) (T, error) {
	var changed T
	text, err := json.Marshal(current)
	if err != nil {
		return changed, fmt.Errorf("encoding the current object: %w", err)
	}
	base, err := parseObject(text)
	if err != nil {
		return changed, err
	}
	change, err := parseObject(patch)
	if err != nil {
		return changed, err
	}
	mergePatch(base, change)
	if text, err = json.Marshal(base); err != nil {
		return changed, fmt.Errorf("encoding the changed object: %w", err)
	}
	if err = json.Unmarshal(text, &changed); err != nil {
		return changed,
			huma.Error422UnprocessableEntity("validation failed", &huma.ErrorDetail{Location: "body", Message: err.Error()})
	}
	return changed, nil
}

// parseObject parses a JSON object. Numbers keep their text.
func parseObject(text []byte) (m map[string]any, err error) {
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

// ineffectiveSettings returns warnings about rights and limits without an effect under the configuration
// f. They are not errors, because the configuration may change later.
func ineffectiveSettings(f *config.File, r tenants.Rights, l tenants.Limits) []string {
	var out []string
	warn := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	priced := false
	for _, p := range f.ResolvedPools() {
		priced = priced || p.Price.Input > 0 || p.Price.Output > 0 || p.Price.CachedInput != nil && *p.Price.CachedInput > 0
	}
	for _, u := range f.RightNames().Unknown(r) {
		warn("%s: %q %s of the configuration in force", u.Field, u.Name, u.Problem)
	}
	if l.Burst > 0 && l.RPM == 0 && l.RPS == 0 {
		warn("limits.burst: has no effect without rpm or rps")
	}
	if l.TokenBurst > 0 && l.TPM == 0 {
		warn("limits.token_burst: has no effect without tpm")
	}
	if (l.DayMoney > 0 || l.MonthMoney > 0) && !priced {
		warn("limits: day_money and month_money have no effect: no tier or pool has a price")
	}
	return out
}

// optional returns t in UTC, or nil for the zero time, which JSON cannot express.
func optional(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
