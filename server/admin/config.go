package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"tierway/config"
	"tierway/server/control"
	"tierway/store"
)

type configView struct {
	Effective     json.RawMessage  `json:"effective" doc:"Configuration in force, with defaults and live overrides. Digests are shortened and secrets omitted."`
	Origins       originsView      `json:"origins" nullable:"false" doc:"Origins of the values in effective, by path: keys of sections after a dot, items of lists by index, such as tiers[0].workers[1].weight. A key of other characters than letters, digits, _ and - is quoted, such as models[\"gpt-4*\"]. A section has the origin of its own key. A value without an origin is a default or inherited."`
	Path          string           `json:"path,omitempty" doc:"Path of the configuration file. Absent: the gateway was started without one."`
	Hash          string           `json:"hash" doc:"SHA-256 of the file that was read last. restart_needed lists the keys of it that are not yet in force."`
	Generation    int64            `json:"generation"`
	LoadedAt      time.Time        `json:"loaded_at"`
	Overrides     []store.Override `json:"overrides" nullable:"false"`
	RestartNeeded []string         `json:"restart_needed" nullable:"false" doc:"Keys with values on disk that take effect after a restart."`
	Warnings      []ProblemView    `json:"warnings" nullable:"false"`
}

// ProblemView is a problem of a configuration, with its severity.
type ProblemView struct {
	Severity string `json:"severity" enum:"error,warning"`
	config.Problem
}

type configText struct {
	Text string `json:"text,omitempty" doc:"Configuration as YAML. Absent: the file on disk is checked."`
}

type validation struct {
	Valid    bool          `json:"valid"`
	Problems []ProblemView `json:"problems" nullable:"false"`
}

// ReloadAnswer is the answer to POST /admin/reload.
type ReloadAnswer struct {
	DryRun bool `json:"dry_run"`
	control.ReloadResult
	Problems []ProblemView `json:"problems" nullable:"false" doc:"Warnings. A configuration with errors is rejected with 422."`
}

func problemView(p config.Problem) ProblemView {
	v := ProblemView{Severity: "error", Problem: p}
	if p.Warning {
		v.Severity = "warning"
	}
	return v
}

type configAPI struct {
	*gateway
	started time.Time
}

func (a *configAPI) getConfig(context.Context, *struct{}) (*reply[configView], error) {
	snap, overrides := a.control.Snapshot(), append([]store.Override{}, a.control.OverridesNow()...)
	effective, err := snap.File.MarshalJSON()
	if err != nil {
		return nil, a.failed("writing the configuration", err)
	}
	v := configView{
		Effective:     effective,
		Origins:       originsOf(snap.File, overrides),
		Path:          a.options.Path,
		Hash:          snap.Hash,
		Generation:    snap.Generation,
		LoadedAt:      snap.LoadedAt.UTC(),
		Overrides:     overrides,
		RestartNeeded: []string{},
		Warnings:      mapped(snap.File.Warnings(), problemView),
	}
	if onDisk, err := a.control.ReadSource(); err == nil { // validate-config shows the problems of the file
		for _, c := range config.Changes(snap.Base, onDisk) {
			if c.Effect == "restart" {
				v.RestartNeeded = append(v.RestartNeeded, c.Path)
			}
		}
	}
	return &reply[configView]{Body: v}, nil
}

type configFile struct {
	Path       string    `json:"path"`
	Text       string    `json:"text" doc:"Text of the file. Digests are shortened, and other possible secrets are replaced by ***. Lines have the numbers of the file."`
	Hash       string    `json:"hash" doc:"SHA-256 of the file, as in from_hash and to_hash of a reload."`
	ModifiedAt time.Time `json:"modified_at"`
	Hidden     int       `json:"secrets_hidden" doc:"Number of places where a possible secret is hidden or shortened."`
}

func (a *configAPI) getConfigFile(context.Context, *struct{}) (*reply[configFile], error) {
	if a.options.Path == "" {
		return nil, huma.Error409Conflict("This gateway was started without a configuration file, so it has no text to show.")
	}
	t, err := config.ReadText(a.options.Path)
	if err != nil {
		return nil, a.unreadable(err)
	}
	return &reply[configFile]{Body: configFile{Path: a.options.Path, Text: t.Text, Hash: t.Hash,
		ModifiedAt: t.ModifiedAt.UTC(), Hidden: t.Hidden}}, nil
}

func (a *configAPI) validateConfig(ctx context.Context, in *struct{ Body *configText }) (*reply[validation], error) {
	var f *config.File
	var err error
	switch text := in.Body != nil && in.Body.Text != ""; {
	// a text can name variables and files of this machine, and its problems would reveal them
	case text && actorOf(ctx).Role != store.RoleAdmin:
		return nil,
			huma.Error403Forbidden("Your key has the role " + actorOf(ctx).Role + "; checking a text needs the role " +
				store.RoleAdmin + ". Omit text to check the file on disk.")
	case text:
		f, err = config.ParseUntil(ctx, "config.yaml", []byte(in.Body.Text), os.LookupEnv)
	default:
		f, err = a.control.ReadSource()
	}
	if err := unfinished(ctx); err != nil {
		return nil, err
	}
	if errors.Is(err, control.ErrNoSource) {
		return nil, huma.Error409Conflict(err.Error())
	}
	if err == nil {
		return &reply[validation]{Body: validation{Valid: true, Problems: mapped(f.Warnings(), problemView)}}, nil
	}
	var problems config.Problems
	if !errors.As(err, &problems) {
		problems = config.Problems{{File: a.options.Path, Message: err.Error(),
			Hint: "the gateway must be able to read the file"}}
	}
	return &reply[validation]{Body: validation{Problems: mapped(problems, problemView)}}, nil
}

// noBody is the type of a body that must be absent. Without it, a configuration sent with a reload
// would be ignored silently.
type noBody struct{}

func (a *configAPI) reloadConfig(ctx context.Context, in *struct {
	DryRun  bool   `query:"dry_run" doc:"Return what would change, and change nothing."`
	IfMatch string `header:"If-Match" doc:"to_hash of a preview. If the file changed since, the answer is 412."`
	Body    *noBody
}) (*tagged[ReloadAnswer], error) {
	expect := strings.Trim(strings.TrimSpace(in.IfMatch), `"`)
	if expect == "*" {
		expect = ""
	}
	r, err := a.control.Reload(ctx, control.ReloadRequest{Actor: actorOf(ctx), DryRun: in.DryRun, Expect: expect})
	switch {
	case errors.Is(err, control.ErrNoSource):
		return nil, huma.Error409Conflict(err.Error())
	case errors.Is(err, control.ErrChanged):
		return nil,
			huma.Error412PreconditionFailed("The configuration file changed since it was previewed: its hash is now " +
				r.ToHash + ". Preview it again, then send that hash as If-Match.")
	case errors.Is(err, control.ErrRejected):
		details := mapped(r.Problems, func(p config.Problem) error {
			return &huma.ErrorDetail{Location: p.Path, Message: p.String()}
		})
		return nil, huma.Error422UnprocessableEntity("The configuration has errors and was not applied. The previous "+
			"configuration stays in force.", details...)
	case err != nil: // a reload uses no store, so the cause is the file or its contents
		return nil, a.unreadable(err)
	}
	return &tagged[ReloadAnswer]{ETag: `"` + r.ToHash + `"`,
		Body: ReloadAnswer{DryRun: in.DryRun, ReloadResult: r, Problems: mapped(r.Problems, problemView)}}, nil
}

// unreadable returns the answer to a configuration that could not be read or applied.
func (a *configAPI) unreadable(err error) error {
	detail := "The configuration could not be applied: " + err.Error() + "."
	if file, ok := errors.AsType[*fs.PathError](err); ok {
		detail = fmt.Sprintf("The file %s cannot be read: %s.", file.Path, file.Err)
	}
	return huma.Error422UnprocessableEntity(detail+" The previous configuration stays in force.",
		&huma.ErrorDetail{Location: a.options.Path, Message: err.Error()})
}

type statusView struct {
	Version    string               `json:"version"`
	Go         string               `json:"go"`
	StartedAt  time.Time            `json:"started_at"`
	Uptime     int64                `json:"uptime_s"`
	Draining   bool                 `json:"draining"`
	Inflight   int64                `json:"inflight"`
	Generation int64                `json:"generation"`
	SQL        SQLView              `json:"sql"`
	Redis      redisView            `json:"redis"`
	Sharing    *control.SharingView `json:"sharing,omitempty" doc:"What this gateway exchanges with others through Redis."`
	Ledger     *ledgerView          `json:"ledger,omitempty"`
	Listen     listenView           `json:"listen" doc:"Addresses of the gateway, and how clients reach its data plane. GET /admin/tiers and GET /admin/rules list the model names."`
}

type listenView struct {
	Data     planeAddress `json:"data" doc:"Data plane. If it listens on all interfaces, clients use a name of the machine."`
	Admin    planeAddress `json:"admin"`
	Hosts    []string     `json:"hosts" nullable:"false" doc:"Host names of the gateway besides localhost and IP addresses (hosts)."`
	Required bool         `json:"auth_required" doc:"Requests to the data plane need a tenant's key."`
}

type planeAddress struct {
	Address string `json:"address" doc:"Address that is open, as host:port."`
	TLS     bool   `json:"tls"`
}

func (a *configAPI) listenOf(f *config.File) listenView {
	v := listenView{Data: planeAddress{f.Listen, f.TLS.On()}, Admin: planeAddress{f.Admin.Listen, f.Admin.TLS.On()},
		Hosts: append([]string{}, f.Hosts...), Required: f.Auth.Required}
	if f.SharedPlanes() {
		v.Admin.TLS = v.Data.TLS
	}
	if a.options.Addr != nil {
		v.Data.Address = cmp.Or(a.options.Addr("data"), v.Data.Address)
		v.Admin.Address = cmp.Or(a.options.Addr("admin"), v.Admin.Address)
	}
	return v
}

// SQLView is the state of the database.
type SQLView struct {
	State  string     `json:"state" enum:"ok,away,read_only,off" doc:"away: the database is unavailable; tenants are served from memory and usage rows are buffered. read_only: the database rejects writes, for example because its disk is full; usage rows are buffered. off: no database is configured."`
	Kind   string     `json:"kind,omitempty" enum:"sqlite,postgres"`
	ReadAt *time.Time `json:"read_at,omitempty" doc:"Time when tenants and keys were last read from the database."`
}

type redisView struct {
	State    string `json:"state" enum:"ok,away,off" doc:"away: Redis is unavailable, and this gateway enforces the limits alone. off: Redis is not configured."`
	Gateways int    `json:"gateways" doc:"Number of gateways that share the limits."`
}

type ledgerView struct {
	Spooled int   `json:"spooled" doc:"Usage rows that are buffered until they are written."`
	Written int64 `json:"written"`
	Dropped int64 `json:"dropped" doc:"Usage rows that were lost because the buffer was full."`
	Away    bool  `json:"away"`
}

func (a *configAPI) getStatus(context.Context, *struct{}) (*reply[statusView], error) {
	now := time.Now()
	v := statusView{
		Version:    a.options.Version,
		Go:         runtime.Version(),
		StartedAt:  a.started.UTC(),
		Uptime:     int64(now.Sub(a.started) / time.Second),
		Draining:   a.options.Draining(),
		Inflight:   a.options.Inflight(),
		Generation: a.control.Snapshot().Generation,
		Listen:     a.listenOf(a.control.Snapshot().File),
		SQL:        a.sqlState(),
		Redis:      a.redisState(),
	}
	if a.control.Stores.Redis != nil {
		v.Sharing = a.control.Pools.Sharing()
	}
	if a.control.Stores.Ledger != nil {
		st := a.control.Stores.Ledger.Stats()
		v.Ledger = &ledgerView{Spooled: st.Waiting, Written: st.Written, Dropped: st.Dropped, Away: st.Err != nil}
	}
	return &reply[statusView]{Body: v}, nil
}

// sqlState returns the state of the database without a query.
func (a *configAPI) sqlState() SQLView {
	if a.control.Stores.SQL == nil {
		return SQLView{State: "off"}
	}
	return SQLView{State: a.control.Database.State().String(), Kind: a.control.Stores.SQL.Kind(),
		ReadAt: optional(a.control.Snapshot().Identity.ReadAt)}
}

// redisState returns the state of Redis without a command.
func (a *configAPI) redisState() redisView {
	redis := a.control.Stores.Redis
	switch {
	case redis == nil:
		return redisView{State: "off", Gateways: max(1, a.control.Snapshot().File.Gateways)}
	case redis.Up():
		return redisView{State: "ok", Gateways: redis.Gateways()}
	}
	return redisView{State: "away", Gateways: redis.Gateways()}
}

type originView struct {
	config.Origin
	By    string     `json:"by,omitempty" doc:"Author of the live override."`
	At    *time.Time `json:"at,omitempty" doc:"Time of the live override."`
	Until *time.Time `json:"until,omitempty" doc:"End of the live override. Absent: it stays until it is reset."`
}

type originsView map[string]originView

// originsOf returns the origins of the values of f, which has these overrides.
func originsOf(f *config.File, overrides []store.Override) originsView {
	all := originsView{}
	for path, origin := range f.Origins() {
		all[path] = originView{Origin: origin}
	}
	for _, o := range overrides {
		at := f.WorkerPath(o.Worker)
		if at == "" || o.Weight == nil && !o.Drain {
			continue
		}
		detail := "weight set by " + o.By
		if o.Drain {
			detail = "drained by " + o.By
		}
		if !o.Until.IsZero() {
			detail += " until " + o.Until.UTC().Format(time.RFC3339)
		}
		all[at+".weight"] = originView{Origin: config.Origin{Source: "override", Detail: detail}, By: o.By,
			At: optional(o.At), Until: optional(o.Until)}
	}
	return all
}
