package admin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/danielgtaylor/huma/v2"

	"tierway/config"
	"tierway/tenants"
)

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

// pointed returns the time, or the zero time for nil.
func pointed(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}
