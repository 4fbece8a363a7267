package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"tierway/config"
	"tierway/openai"
	"tierway/openai/prompt"
	"tierway/tiers"
)

// gateway gives prompts the tiers that the gateway gives them: by its configuration,
// its reader of requests and its rules.
type gateway struct {
	catalog *tiers.Catalog
	recent  *tiers.RecentScores // of one set
}

// newGateway makes the gateway of three tiers with a classifier section; "" is the
// configuration as it is shipped, which has none.
func newGateway(section string) (gateway, error) {
	const file = `auth: { required: false }
tiers:
  - { name: small, model: s, workers: [ { name: s, url: "http://127.0.0.1:1" } ] }
  - { name: medium, model: m, workers: [ { name: m, url: "http://127.0.0.1:2" } ] }
  - { name: large, model: l, workers: [ { name: l, url: "http://127.0.0.1:3" } ] }
`
	f, err := config.Parse("classify", []byte(file+section), nil)
	if err != nil {
		return gateway{}, fmt.Errorf("checking the configuration: %w", err)
	}
	return gateway{catalog: f.Catalog()}, nil
}

// message is a message of a chat.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// windowScores is at least the number of scores of which the gateway makes its thresholds.
const windowScores = 2000

// route sends the prompts of a set in a random order, as those of many users come, and returns their
// tiers. The thresholds of shares are those of a gateway that serves such prompts for long: it has
// received the set before, as often as its window needs.
func (g gateway) route(prompts []promptRow) ([]routed, error) {
	g.recent = tiers.NewRecentScores(1)
	all, order := make([]routed, len(prompts)), rand.New(rand.NewPCG(seed, 1))
	for sent, last := 0, len(prompts) == 0; !last; sent += len(prompts) {
		last = sent >= windowScores
		for _, i := range order.Perm(len(prompts)) {
			tier, err := g.tier(prompts[i])
			if err != nil {
				return nil, err
			}
			all[i] = routed{tier, prompts[i].gain, prompts[i].category}
		}
	}
	return all, nil
}

// tier returns the index of the tier that a prompt is sent to, without max_tokens. One
// with a turn before it is sent in its chat, which stays at its tier.
func (g gateway) tier(p promptRow) (int, error) {
	chats := tiers.NewChats(1)
	turns := []message{{"user", p.text}}
	if p.before != "" {
		turns = []message{{"user", p.before}}
		if _, err := g.send(turns, chats); err != nil {
			return 0, err
		}
		turns = append(turns, message{"assistant", "…"}, message{"user", p.text})
	}
	return g.send(turns, chats)
}

// send resolves one request.
func (g gateway) send(turns []message, chats *tiers.Chats) (int, error) {
	body, err := json.Marshal(map[string]any{"model": tiers.Auto, "messages": turns})
	if err != nil {
		return 0, fmt.Errorf("writing a request: %w", err)
	}
	req, err := openai.Parse(openai.Chat, body)
	if err != nil {
		return 0, fmt.Errorf("reading a request: %w", err)
	}
	var score tiers.PendingScore
	v, err := g.catalog.Resolve(tiers.Query{Model: req.Model, Chats: chats, Recent: g.recent, Pending: &score,
		Input: &tiers.ClassifierInput{
			Now: time.Unix(1, 0), PromptTokens: req.PromptTokens(), Session: 1,
			User:   func() []byte { return prompt.AppendUserText(nil, req, tiers.TextLimit) },
			System: func() []byte { return prompt.AppendSystemText(nil, req, tiers.TextLimit) },
		}})
	if err != nil {
		return 0, fmt.Errorf("resolving a request: %w", err)
	}
	g.recent.Add(score)
	return slices.Index(tierNames(), v.Target), nil
}

func tierNames() []string { return []string{"small", "medium", "large"} }
