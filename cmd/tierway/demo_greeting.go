package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strings"
	"text/template"

	"tierway/server"
)

// demoGreeting is the data that a demo prints when it is ready.
type demoGreeting struct {
	BaseURL    string  `json:"base_url"`
	UIURL      string  `json:"ui_url"` // logs in, once
	AdminURL   string  `json:"admin_url"`
	Key        string  `json:"api_key"`
	AdminKey   string  `json:"admin_key"`
	ConfigFile string  `json:"config_file"`
	Load       float64 `json:"load"` // background load, in requests per second

	Disaggregated bool `json:"disaggregated,omitempty"` // the medium tier has two stages
}

// newDemoGreeting returns the data of a gateway that listens.
func newDemoGreeting(s *server.Server, path string, keys demoKeys, load float64) (demoGreeting, error) {
	admin := "http://" + s.Addr("admin")
	code, err := s.LoginCode(keys.admin)
	if err != nil {
		return demoGreeting{}, fmt.Errorf("making a login link: %w", err)
	}
	return demoGreeting{
		BaseURL:    "http://" + s.Addr("data") + "/v1",
		UIURL:      loginURL(admin, code),
		AdminURL:   admin,
		Key:        keys.tenant,
		AdminKey:   keys.admin,
		ConfigFile: path,
		Load:       load,
	}, nil
}

// AnthropicURL returns the base URL for clients that append /v1 themselves.
func (g demoGreeting) AnthropicURL() string { return strings.TrimSuffix(g.BaseURL, "/v1") }

// loginURL returns the address of the UI with a code that logs in once. The code is in the fragment,
// which browsers do not send and servers do not log.
func loginURL(admin, code string) string { return admin + "/#/login?code=" + url.QueryEscape(code) }

// greetingText shows first requests that can be copied unchanged.
const greetingText = `Tierway demo: three tiers of simulated engines behind one gateway.

  base URL   {{.BaseURL}}
  UI         {{.UIURL}}
             The link works once. The admin key logs in as well.
  API key    {{.Key}}
  admin      {{.AdminURL}}   key {{.AdminKey}}
  config     {{.ConfigFile}}
             Edit this file, then reload in the UI. It is removed when the demo stops.

Variables for clients of OpenAI's and Anthropic's APIs, such as SDKs and Claude Code:

export OPENAI_BASE_URL={{.BaseURL}} OPENAI_API_KEY={{.Key}}
export ANTHROPIC_BASE_URL={{.AnthropicURL}} ANTHROPIC_AUTH_TOKEN={{.Key}}

Variables for the commands in the documentation:

export BASE_URL={{.BaseURL}} API_KEY={{.Key}} ADMIN_URL={{.AdminURL}} ADMIN_KEY={{.AdminKey}} TIERWAY_ADMIN_KEY={{.AdminKey}} TIERWAY_ADMIN_URL={{.AdminURL}}

A streamed response:

curl -sN {{.BaseURL}}/chat/completions -H 'Authorization: Bearer {{.Key}}' -H 'Content-Type: application/json' -d '{"model":"auto","stream":true,"max_tokens":20,"messages":[{"role":"user","content":"Say hello"}]}'

The classifier selects the large tier; the response headers explain the decision:

curl -si {{.BaseURL}}/chat/completions -H 'Authorization: Bearer {{.Key}}' -H 'Content-Type: application/json' -d '{"model":"auto","max_tokens":20,"messages":[{"role":"user","content":"Write a Python function that sorts a list"}]}'

A header selects the medium tier:

curl -si {{.BaseURL}}/chat/completions -H 'Authorization: Bearer {{.Key}}' -H 'X-Model-Tier: medium' -H 'Content-Type: application/json' -d '{"model":"auto","max_tokens":20,"messages":[{"role":"user","content":"Say hello"}]}'

{{if .Disaggregated}}A prefill engine computes a long prompt, and a decode engine generates the answer:

curl -si {{.BaseURL}}/chat/completions -H 'Authorization: Bearer {{.Key}}' -H 'X-Model-Tier: medium' -H 'Content-Type: application/json' -d '{"model":"auto","max_tokens":20,"messages":[{"role":"user","content":"Add these: '"$(seq -s ' ' 2000)"'"}]}'

{{end}}The models that this key may use:

curl -s {{.BaseURL}}/models -H 'Authorization: Bearer {{.Key}}'

{{if .Load}}A background load of {{.Load}} requests per second gives the UI something to show (--load 0 turns it off).

Press Ctrl-C to stop. One log line per request follows, except for the background load.
{{- else}}Press Ctrl-C to stop. One log line per request follows.
{{- end}}
`

func (g demoGreeting) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(g)
	}
	return executeTemplate(w, greetingText, g)
}

func executeTemplate(w io.Writer, text string, values any) error {
	t, err := template.New("").Parse(text)
	if err != nil {
		return err
	}
	return t.Execute(w, values)
}
