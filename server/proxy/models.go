package proxy

import (
	"encoding/json"
	"net/http"
	"strings"

	"tierway/decisions"
	"tierway/server/control"
)

// model is an entry of GET /v1/models, with what both OpenAI's and Anthropic's
// clients require of one.
type model struct {
	ID          string `json:"id"`
	Object      string `json:"object"`
	Created     int64  `json:"created"`
	OwnedBy     string `json:"owned_by"`
	Type        string `json:"type"`
	DisplayName string `json:"display_name"`
	CreatedAt   string `json:"created_at"`
	Lifecycle   string `json:"lifecycle"`
}

// modelList is the answer of GET /v1/models, all on one page.
type modelList struct {
	Object  string  `json:"object"`
	Data    []model `json:"data"`
	HasMore bool    `json:"has_more"`
	FirstID *string `json:"first_id"` // null for an empty list
	LastID  *string `json:"last_id"`
}

func modelOf(name string) model {
	return model{ID: name, Object: "model", OwnedBy: "tierway", Type: "model", DisplayName: name, CreatedAt: "1970-01-01T00:00:00Z", Lifecycle: "active"}
}

// listModels answers with the names that the tenant may use, or with one.
func (x *exchange) listModels() error {
	if err := x.authenticate(); err != nil {
		return err
	}
	names := x.snap.Catalog.Models(x.resolver.query(""))
	var out any
	if x.in.id == "" {
		list := modelList{Object: "list", Data: make([]model, len(names))}
		for i, n := range names {
			list.Data[i] = modelOf(n)
		}
		if len(names) > 0 {
			list.FirstID, list.LastID = &names[0], &names[len(names)-1]
		}
		out = list
	} else {
		_, err := x.snap.Catalog.Resolve(x.resolver.query(x.in.id))
		if err != nil {
			return modelNotFound(x.in.id)
		}
		out = modelOf(x.in.id)
	}
	body, err := json.Marshal(out)
	if err != nil {
		return err
	}
	x.ending.result = decisions.OK
	if err := x.answerWhole(http.StatusOK, nil, body); err != nil {
		x.ending.result = decisions.ClientGone
	}
	return nil
}

// servedPaths names the endpoints of a pool for a message.
func servedPaths(p *control.Pool) string {
	var out []string
	for _, rt := range Routes() {
		if rt.Kind == Infer && p.Served[rt.dialect] {
			out = append(out, rt.worker)
		}
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}
