package proxy

import (
	"encoding/json"
	"net/http"

	"tierway/decisions"
	"tierway/server/intake"
)

// model is an entry of GET /v1/models, with the fields that OpenAI's and Anthropic's clients require.
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
	return model{
		ID:          name,
		Object:      "model",
		OwnedBy:     "tierway",
		Type:        "model",
		DisplayName: name,
		CreatedAt:   "1970-01-01T00:00:00Z",
		Lifecycle:   "active",
	}
}

// listModels answers with the models that the caller may use, or with the one in the path.
func listModels(x *exchange) error {
	var out any
	if id := x.in.PathID; id == "" {
		names := intake.ModelNames(&x.in, &x.caller)
		list := modelList{Object: "list", Data: make([]model, len(names))}
		for i, n := range names {
			list.Data[i] = modelOf(n)
		}
		if len(names) > 0 {
			list.FirstID, list.LastID = &names[0], &names[len(names)-1]
		}
		out = list
	} else {
		if err := intake.CheckModel(&x.in, &x.caller, id); err != nil {
			return err
		}
		out = modelOf(id)
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
