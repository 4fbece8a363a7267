package admin

import (
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
	Effective       json.RawMessage  `json:"effective" doc:"With defaults and live overrides; digests are cut, secrets left out."`
	Path            string           `json:"path,omitempty" doc:"The file; absent: started without one."`
	Hash            string           `json:"hash" doc:"SHA-256 of the file as it was read last; restart_required tells what of it waits."`
	Generation      int64            `json:"generation"`
	LoadedAt        time.Time        `json:"loaded_at"`
	Overrides       []store.Override `json:"overrides" nullable:"false"`
	RestartRequired []string         `json:"restart_required" nullable:"false" doc:"Keys whose values on disk wait for a restart."`
	Warnings        []ProblemView    `json:"warnings" nullable:"false"`
}

// ProblemView is a problem of a configuration.
type ProblemView struct {
	Severity string `json:"severity" enum:"error,warning"`
	config.Problem
}

type configText struct {
	Text string `json:"text,omitempty" doc:"YAML; absent: the file on disk."`
}

type validation struct {
	Valid    bool          `json:"valid"`
	Problems []ProblemView `json:"problems" nullable:"false"`
}

// ReloadAnswer is the answer to a reload.
type ReloadAnswer struct {
	DryRun bool `json:"dry_run"`
	control.ReloadResult
	Problems []ProblemView `json:"problems" nullable:"false" doc:"Warnings; a configuration with errors is refused."`
}

func problemView(p config.Problem) ProblemView {
	v := ProblemView{Severity: "error", Problem: p}
	if p.Warning {
		v.Severity = "warning"
	}
	return v
}

// configAPI shows, checks and reloads the configuration.
type configAPI struct {
	*gateway
	started time.Time
}

func (a *configAPI) getConfig(context.Context, *struct{}) (*reply[configView], error) {
	snap := a.control.Snapshot()
	effective, err := snap.File.MarshalJSON()
	if err != nil {
		return nil, a.failed("printing the configuration", err)
	}
	v := configView{Effective: effective, Path: a.options.Path, Hash: snap.Hash, Generation: snap.Generation, LoadedAt: snap.LoadedAt.UTC(),
		Overrides: append([]store.Override{}, a.control.OverridesNow()...), RestartRequired: []string{}, Warnings: mapped(snap.File.Warnings(), problemView)}
	if onDisk, err := a.control.ReadSource(); err == nil { // what is wrong with the file is what validate tells
		for _, c := range config.Changes(snap.Base, onDisk) {
			if c.Effect == "restart" {
				v.RestartRequired = append(v.RestartRequired, c.Path)
			}
		}
	}
	return &reply[configView]{Body: v}, nil
}

func (a *configAPI) validateConfig(ctx context.Context, in *struct{ Body *configText }) (*reply[validation], error) {
	var f *config.File
	var err error
	switch text := in.Body != nil && in.Body.Text != ""; {
	case text && actorOf(ctx).Role != store.RoleAdmin: // a text names variables and files of this machine, and its problems tell of them
		return nil, huma.Error403Forbidden("Your key has the role " + actorOf(ctx).Role + "; a text is checked for " + store.RoleAdmin + ". Without one, the file on disk is checked.")
	case text:
		f, err = config.Parse("config.yaml", []byte(in.Body.Text), os.LookupEnv)
	default:
		f, err = a.control.ReadSource()
	}
	if errors.Is(err, control.ErrNoSource) {
		return nil, huma.Error409Conflict(err.Error())
	}
	if err == nil {
		return &reply[validation]{Body: validation{Valid: true, Problems: mapped(f.Warnings(), problemView)}}, nil
	}
	var problems config.Problems
	if !errors.As(err, &problems) {
		problems = config.Problems{{File: a.options.Path, Message: err.Error(), Hint: "the gateway must be able to read the file"}}
	}
	return &reply[validation]{Body: validation{Problems: mapped(problems, problemView)}}, nil
}

// noBody is the body of what takes none: a configuration that was sent to be
// reloaded would otherwise be left out without a word.
type noBody struct{}

func (a *configAPI) reloadConfig(ctx context.Context, in *struct {
	DryRun  bool   `query:"dry_run" doc:"Say what would change, and change nothing."`
	IfMatch string `header:"If-Match" doc:"The to_hash of a preview: another file is refused."`
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
		return nil, huma.Error412PreconditionFailed("The configuration file changed since it was previewed: its hash is now " + r.ToHash + ". Preview it again, then send that hash as If-Match.")
	case errors.Is(err, control.ErrRejected):
		return nil, rejected(r.Problems)
	case err != nil: // a reload asks no store: it is the file, or what the file asks for
		return nil, a.unreadable(err)
	}
	return &tagged[ReloadAnswer]{ETag: `"` + r.ToHash + `"`, Body: ReloadAnswer{DryRun: in.DryRun, ReloadResult: r, Problems: mapped(r.Problems, problemView)}}, nil
}

// rejected is the answer to a configuration with errors: all of them, each with
// its place.
func rejected(ps config.Problems) error {
	details := mapped(ps, func(p config.Problem) error { return &huma.ErrorDetail{Location: p.Path, Message: p.String()} })
	return huma.Error422UnprocessableEntity("The configuration has errors. The one in force stays.", details...)
}

func (a *configAPI) unreadable(err error) error {
	detail := "The configuration could not be put in force: " + err.Error() + "."
	if file, ok := errors.AsType[*fs.PathError](err); ok {
		detail = fmt.Sprintf("The file %s cannot be read: %s.", file.Path, file.Err)
	}
	return huma.Error422UnprocessableEntity(detail+" The one in force stays.", &huma.ErrorDetail{Location: a.options.Path, Message: err.Error()})
}

type statusView struct {
	Version    string      `json:"version"`
	Go         string      `json:"go"`
	StartedAt  time.Time   `json:"started_at"`
	Uptime     int64       `json:"uptime_s"`
	Draining   bool        `json:"draining"`
	Inflight   int64       `json:"inflight"`
	Generation int64       `json:"generation"`
	SQL        SQLView     `json:"sql"`
	Redis      redisView   `json:"redis"`
	Ledger     *ledgerView `json:"ledger,omitempty"`
}

// SQLView is the state of the database.
type SQLView struct {
	State  string     `json:"state" enum:"ok,away,read_only,off" doc:"away: tenants are served from memory, usage rows are buffered. read_only: it takes no writes, as with a full disk; usage rows are buffered."`
	Kind   string     `json:"kind,omitempty" enum:"sqlite,postgres"`
	ReadAt *time.Time `json:"read_at,omitempty" doc:"Of the directory in memory."`
}

type redisView struct {
	State    string `json:"state" enum:"ok,away,off" doc:"away: this gateway limits alone."`
	Gateways int    `json:"gateways" doc:"That share the limits."`
}

type ledgerView struct {
	Spooled int   `json:"spooled" doc:"Rows that wait to be written."`
	Written int64 `json:"written"`
	Dropped int64 `json:"dropped" doc:"Rows that were lost because too many waited."`
	Away    bool  `json:"away"`
}

func (a *configAPI) getStatus(context.Context, *struct{}) (*reply[statusView], error) {
	now := time.Now()
	v := statusView{Version: a.options.Version, Go: runtime.Version(), StartedAt: a.started.UTC(), Uptime: int64(now.Sub(a.started) / time.Second),
		Draining: a.options.Draining(), Inflight: a.options.Inflight(), Generation: a.control.Snapshot().Generation,
		SQL: SQLView{State: "off"}, Redis: redisView{State: "off", Gateways: max(1, a.control.Snapshot().File.Gateways)}}
	if a.control.Stores.SQL != nil {
		v.SQL = SQLView{State: a.control.Database.State().String(), Kind: a.control.Stores.SQL.Kind(), ReadAt: optional(a.control.Snapshot().Identity.ReadAt)}
	}
	if a.control.Stores.Redis != nil {
		v.Redis = redisView{State: "away", Gateways: a.control.Stores.Redis.Gateways()}
		if a.control.Stores.Redis.Up() {
			v.Redis.State = "ok"
		}
	}
	if a.control.Stores.Ledger != nil {
		st := a.control.Stores.Ledger.Stats()
		v.Ledger = &ledgerView{Spooled: st.Waiting, Written: st.Written, Dropped: st.Dropped, Away: st.Err != nil}
	}
	return &reply[statusView]{Body: v}, nil
}
