package proxy

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"tierway/decisions"
	"tierway/openai"
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
	MaxModelLen int64  `json:"max_model_len,omitempty"` // vLLM's name of the context length; 0: unknown
}

// modelList is the answer of GET /v1/models: one page for Anthropic's clients that request pages, else everything.
type modelList struct {
	Object  string  `json:"object"`
	Data    []model `json:"data"`
	HasMore bool    `json:"has_more"`
	FirstID *string `json:"first_id"` // null for an empty list
	LastID  *string `json:"last_id"`
}

// modelOf returns the entry of a model with a context of that many tokens.
func modelOf(name string, context int64) model {
	return model{
		ID:          name,
		Object:      "model",
		OwnedBy:     "tierway",
		Type:        "model",
		DisplayName: name,
		CreatedAt:   "1970-01-01T00:00:00Z",
		Lifecycle:   "active",
		MaxModelLen: context,
	}
}

// pageOf returns the part of names that the query of Anthropic's clients selects, and whether more names follow in its
// direction.
func pageOf(names []string, query url.Values) (page []string, more bool, err error) {
	wrong := func(name, want string) error {
		return &openai.Error{Code: openai.CodeInvalidValue, Param: name,
			Message: "The parameter " + name + " is " + openai.Quoted(query.Get(name)) + "; send " + want + "."}
	}
	limit := len(names)
	if text := query.Get("limit"); text != "" {
		const maximum = 1000 // of Anthropic's API
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > maximum {
			return nil, false, wrong("limit", "an integer from 1 to 1000")
		}
	}
	if before := query.Get("before_id"); before != "" {
		at := slices.Index(names, before)
		if at < 0 {
			return nil, false, wrong("before_id", "an id of the list")
		}
		from := max(0, at-limit)
		return names[from:at], from > 0, nil
	}
	if after := query.Get("after_id"); after != "" {
		at := slices.Index(names, after)
		if at < 0 {
			return nil, false, wrong("after_id", "an id of the list")
		}
		names = names[at+1:]
	}
	return names[:min(limit, len(names))], limit < len(names), nil
}

// listModels answers with the models that the caller may use, or with the one in the path.
func (x *exchange) listModels() error {
	var out any
	if id := x.in.PathID; id == "" {
		names, more := intake.ModelNames(&x.in, &x.caller), false
		if x.in.Shape == openai.Messages { // OpenAI's API has no pages
			var err error
			if names, more, err = pageOf(names, x.in.HTTP.URL.Query()); err != nil {
				return err
			}
		}
		list := modelList{Object: "list", Data: make([]model, len(names)), HasMore: more}
		for i, n := range names {
			list.Data[i] = modelOf(n, intake.ModelContext(&x.in, &x.caller, n))
		}
		if len(names) > 0 {
			list.FirstID, list.LastID = &names[0], &names[len(names)-1]
		}
		out = list
	} else {
		if err := intake.CheckModel(&x.in, &x.caller, id); err != nil {
			return err
		}
		out = modelOf(id, intake.ModelContext(&x.in, &x.caller, id))
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
