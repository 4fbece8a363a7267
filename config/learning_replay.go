package config

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"slices"
	"strings"
	"time"

	"tierway/tenants"
	"tierway/tiers"
)

// Replay configures the requests that are repeated on the first and the last tier.
type Replay struct {
	Share   float64       `yaml:"share" max:"0.1" doc:"Share of the classified requests that are repeated on the first and on the last tier, while both have room. A judge reads both answers. Its verdict is written as two labels. See docs/training.md."`
	APIKey  string        `yaml:"api_key" secret:"true" absent:"required with a 'share'" doc:"Key of a tenant of the operator. Repeated requests and those of 'judge.model' are requests of this tenant, with the class 'batch': its limits, budgets and ledger apply. Requests with this key are not repeated. Write it as ${NAME} of an environment variable."`
	Judge   Judge         `yaml:"judge" doc:"Reads the answers of both tiers: a command or a model."`
	Timeout time.Duration `yaml:"timeout" doc:"Longest time of each repeated request, with its time in the queue, and of the judge."`
}

// Judge configures the command or the model that judges two answers. Exactly one of them is set.
type Judge struct {
	Command []string `yaml:"command" form:"argument" ordered:"true" doc:"Program and arguments, which are started for each pair of answers, without a shell. It reads '{\"request\": …, \"answers\": {\"small\": \"…\", \"large\": \"…\"}}' from standard input, with the names of the tiers, and writes '{\"small\": true, \"large\": false}'. Of the environment it has PATH."`
	Model   string   `yaml:"model" doc:"Model name, as clients send it, of a model that judges by a built-in rubric. It should be better than the last tier's model."`
}

// defaultReplayTimeout is the time of a long answer of a large model.
const defaultReplayTimeout = 120 * time.Second

func (d *decoder) checkReplay(f *File) {
	const path = "learning.replay"
	c := f.Learning.Replay
	switch n := len(c.Judge.Command); {
	case c.Share == 0 && !d.reported[path+".share"] && (c.APIKey != "" || n > 0 || c.Judge.Model != ""):
		d.warn(path, "has no effect without a share", "write share: 0.01, or remove the section")
		return
	case c.Share == 0:
		return
	case n > 0 && c.Judge.Model != "":
		d.report(path+".judge", "has a command and a model", "remove one of them")
	case n > 0 && c.Judge.Command[0] == "":
		d.report(path+".judge.command[0]", "is empty", "write the path of a program")
	case n > 0:
		d.checkJudge(path+".judge.command[0]", c.Judge.Command[0])
	case c.Judge.Model == "":
		d.report(path+".judge", "is missing, so no answer would get a label",
			"write judge: { command: [/path/of/a/program] }, or judge: { model: NAME }")
	default:
		d.checkJudgeModel(f, path+".judge.model", c.Judge.Model)
	}
	if len(f.Tiers) < 2 {
		d.report(path+".share", "has no effect with fewer than two tiers: there is nothing to compare",
			"add a tier, or remove the section")
	}
	if f.Learning.Directory == "" {
		d.report(path+".share", "has no effect without learning.directory, where the labels are written",
			"set learning.directory, or remove the section")
	}
	d.checkReplayKey(f, path+".api_key", c.APIKey)
}

// checkReplayKey checks that the key may belong to a tenant. The database's keys are unknown here.
func (d *decoder) checkReplayKey(f *File, path, key string) {
	switch digest := tenants.Digest(key); {
	case key == "":
		d.report(path, "is missing: repeated requests need a tenant",
			"create a tenant for them, with a limit or a budget, and write its key as ${NAME}")
	case f.Store.SQL == "" && !slices.ContainsFunc(f.Auth.Keys, func(k tenants.KeyConfig) bool {
		return strings.EqualFold(k.SHA256, hex.EncodeToString(digest[:]))
	}):
		d.report(path, "is no key of auth.keys, so all repeated requests would be refused",
			"add its digest to auth.keys, or set store.sql").hide = true
	default:
		d.checkReplayTenant(f, path, key)
	}
}

// checkReplayTenant checks that the tenant of a key of auth.keys may use both tiers.
func (d *decoder) checkReplayTenant(f *File, path, key string) {
	ts, ks, err := tenants.FromConfig(f.Auth.Keys)
	if err != nil { // reported before
		return
	}
	c, err := tenants.NewDirectory(ts, ks).Authenticate(key, time.Time{})
	if err != nil { // it is a key of the database
		return
	}
	for _, name := range outerTiers(f) {
		if !c.MayUseTier(name) {
			d.report(path, fmt.Sprintf("belongs to %q, which may not use the tier %q, so all repeated requests would be refused",
				c.Tenant, name), fmt.Sprintf("add %q to the tiers of %q in auth.keys, or write the key of another tenant", name,
				c.Tenant)).hide = true
			return
		}
	}
}

// outerTiers returns the names of the compared tiers, the first and the last one, or nil without two tiers.
func outerTiers(f *File) []string {
	if n := len(f.Tiers); n > 1 {
		return []string{f.Tiers[0].Name, f.Tiers[n-1].Name}
	}
	return nil
}

// checkJudge warns if the program of a judge cannot be started now. A draft is not checked: the warning would show
// which files exist.
func (d *decoder) checkJudge(path, program string) {
	if d.draft {
		return
	}
	if _, err := exec.LookPath(program); err != nil {
		cause := "cannot be started"
		switch {
		case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
			cause = "does not exist"
		case errors.Is(err, fs.ErrPermission):
			cause = "is not executable"
		}
		d.warn(path, d.shown(path, program)+" "+cause+", so no answer would be judged",
			"install the program, or correct the path")
	}
}

// checkJudgeModel checks that a model that judges is one of the gateway, and warns if it judges its own answers.
func (d *decoder) checkJudgeModel(f *File, path, model string) {
	if f.catalog == nil { // its errors are reported
		return
	}
	all := func(string) bool { return true }
	q := tiers.Query{Model: model, Allowed: all, AllowedModel: all}
	to, err := f.catalog.Resolve(q)
	switch way := "name a model that is better than the last tier's, such as that of a pool"; {
	case err != nil:
		d.report(path, d.shown(path, model)+" is not served: no tier, no pool and no entry of models has this name",
			"name the model of a tier or pool that serves chat, or an alias")
	case f.catalog.Classifies(q):
		d.warn(path, d.shown(path, model)+
			" lets the classifier select the tier that judges, and a model prefers its own answers", way)
	case slices.Contains(outerTiers(f), to.Target):
		d.warn(path, fmt.Sprintf("%s leads to the tier %q, whose answers are compared, and a model prefers its own answers",
			d.shown(path, model), to.Target), way)
	}
}
