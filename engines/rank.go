package engines

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
)

// texts is one text or a list of them.
type texts []string

func (t *texts) UnmarshalJSON(b []byte) error {
	if b[0] == '"' {
		*t = texts{""}
		return json.Unmarshal(b, &(*t)[0])
	}
	return json.Unmarshal(b, (*[]string)(t))
}

// likeness returns 0 to 1: the share of a's words that b contains, changed a little by a hash so
// that equal shares have a fixed order.
func likeness(a, b string) float64 {
	b = strings.ToLower(b)
	wanted := strings.Fields(strings.ToLower(a))
	found := 0
	for _, word := range wanted {
		if strings.Contains(b, word) {
			found++
		}
	}
	share := float64(found) / float64(max(len(wanted), 1))
	jitter := float64(hashIDs(0, appendIDs(nil, a+b))%1000) / 1000
	return 0.98*share + 0.02*jitter
}

// rerank serves POST /v1/rerank: the documents ordered by how many of the query's words they
// contain.
func (e *Engine) rerank(w http.ResponseWriter, r *request) error {
	var req struct {
		Model     string   `json:"model"`
		Query     string   `json:"query"`
		Documents texts    `json:"documents"`
		TopN      int      `json:"top_n"`
		Priority  priority `json:"priority"`
	}
	if err := e.parse(r, &req, &req.Model); err != nil {
		return err
	}
	if req.Query == "" || len(req.Documents) == 0 {
		return badRequest("documents", "query and documents must not be empty")
	}
	prompts := make([][]uint32, len(req.Documents))
	type result struct {
		Index    int            `json:"index"`
		Document map[string]any `json:"document"`
		Score    float64        `json:"relevance_score"`
	}
	results := make([]result, len(req.Documents))
	for i, d := range req.Documents {
		prompts[i] = appendIDs(appendIDs(nil, req.Query), d)
		results[i] = result{Index: i, Document: map[string]any{"text": d}, Score: likeness(req.Query, d)}
	}
	slices.SortStableFunc(results, func(a, b result) int { return cmp.Compare(b.Score, a.Score) })
	if req.TopN > 0 {
		results = results[:min(req.TopN, len(results))]
	}
	return e.writeRead(w, r, prompts, req.Priority,
		map[string]any{"id": e.newID("rerank-"), "model": e.modelName(req.Model), "results": results})
}

// score serves POST /v1/score: one text against each of a list, or pairs.
func (e *Engine) score(w http.ResponseWriter, r *request) error {
	var req struct {
		Model    string   `json:"model"`
		Text1    texts    `json:"text_1"`
		Text2    texts    `json:"text_2"`
		Priority priority `json:"priority"`
	}
	if err := e.parse(r, &req, &req.Model); err != nil {
		return err
	}
	if len(req.Text1) == 0 || len(req.Text2) == 0 {
		return badRequest("text_1", "text_1 and text_2 must not be empty")
	}
	if len(req.Text1) != 1 && len(req.Text1) != len(req.Text2) {
		return badRequest("text_1", "text_1 must be one text or as many as text_2 has: %d against %d", len(req.Text1),
			len(req.Text2))
	}
	prompts := make([][]uint32, len(req.Text2))
	data := make([]map[string]any, len(req.Text2))
	for i, b := range req.Text2 {
		a := req.Text1[min(i, len(req.Text1)-1)]
		prompts[i] = appendIDs(appendIDs(nil, a), b)
		data[i] = map[string]any{"object": "score", "index": i, "score": likeness(a, b)}
	}
	return e.writeRead(w, r, prompts, req.Priority, map[string]any{"id": e.newID("score-"), "object": "list",
		"created": e.c.Clock().Unix(), "model": e.modelName(req.Model), "data": data})
}

// moderationWords flag a category if the text contains them; immutable.
var moderationWords = map[string]string{"violence": "kill", "harassment": "idiot", "self-harm": "hurt myself",
	"hate": "i hate", "sexual": "nude"}

// moderated is the input of a moderation: one text, a list of them, or one list of parts.
type moderated struct{ texts }

func (m *moderated) UnmarshalJSON(b []byte) error {
	var parts content
	err := json.Unmarshal(b, &m.texts)
	if err != nil && json.Unmarshal(b, &parts) == nil {
		m.texts, err = texts{strings.Join(parts.texts, "\n")}, nil
	}
	return err
}

// moderations serves POST /v1/moderations with one word per category.
func (e *Engine) moderations(w http.ResponseWriter, r *request) error {
	var req struct {
		Model string    `json:"model"`
		Input moderated `json:"input"`
	}
	if err := decode(r.body, &req); err != nil {
		return err
	}
	if err := e.checkModel(cmp.Or(req.Model, e.c.Model)); err != nil { // OpenAI's default moderation model needs no name
		return err
	}
	if len(req.Input.texts) == 0 {
		return badRequest("input", "the field input is missing or empty")
	}
	results := make([]map[string]any, len(req.Input.texts))
	prompts := make([][]uint32, len(req.Input.texts))
	for i, text := range req.Input.texts {
		prompts[i] = appendIDs([]uint32{markStart}, text)
		results[i] = moderate(strings.ToLower(text))
	}
	if _, err := e.read(r, prompts, priority{}); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, map[string]any{"id": e.newID("modr-"), "model": e.modelName(req.Model),
		"results": results})
}

func moderate(text string) map[string]any {
	categories, scores, flagged := make(map[string]bool), make(map[string]float64), false
	for category, word := range moderationWords {
		hit := strings.Contains(text, word)
		categories[category], scores[category] = hit, 0.01
		if hit {
			scores[category], flagged = 0.97, true
		}
	}
	return map[string]any{"flagged": flagged, "categories": categories, "category_scores": scores}
}
