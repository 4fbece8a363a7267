package admin

import (
	"time"

	"tierway/config"
	"tierway/store"
)

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
