package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/template"

	"github.com/spf13/cobra"

	"tierway/config"
	"tierway/engines"
	"tierway/server"
	"tierway/telemetry"
	"tierway/tenants"
)

// demoSeed makes the responses of all demos equal.
const demoSeed = 7

func demoCommand() *cobra.Command {
	var listen, adminListen string
	var asJSON bool
	c := &cobra.Command{
		Use:     "demo",
		Short:   "Serve three tiers of simulated engines, with keys created for this run",
		Example: "  tierway demo\n  tierway demo --json --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0",
		Long: "The demo needs no configuration file and stores nothing on disk. To serve real engines without a file, run\n" +
			"`tierway serve --model NAME --worker-urls URL`.",
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			return demo(c, listen, adminListen, asJSON)
		},
	}
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:8080", "address of the data plane, loopback only")
	c.Flags().StringVar(&adminListen, "admin-listen", "127.0.0.1:8081", "address of the admin plane, loopback only")
	c.Flags().BoolVar(&asJSON, "json", false, "print one line of JSON instead of the greeting when ready")
	return c
}

// demo starts the engines and the gateway and serves until a signal.
func demo(c *cobra.Command, listen, adminListen string, asJSON bool) error {
	if err := checkDemoAddresses(listen, adminListen); err != nil {
		return err
	}
	ctx, stop := signals(c.Context(), func() {})
	defer stop()
	key, err := tenants.NewKey(rand.Reader, "tw-")
	if err != nil {
		return fmt.Errorf("making a key: %w", err)
	}
	adminKey, err := tenants.NewKey(rand.Reader, "tw-adm-")
	if err != nil {
		return fmt.Errorf("making an admin key: %w", err)
	}
	// The engines outlive the signal: their streams must not end before the gateway that reads them.
	fleet, closeFleet, err := startFleet(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	defer closeFleet()
	d := demoSettings{Key: digest(key), AdminKey: digest(adminKey), Tiers: fleet}
	file, err := d.config()
	if err != nil {
		return err
	}
	if file, err = override(c, file, listen, adminListen); err != nil {
		return err
	}
	logs := openLogs(c.ErrOrStderr(), nil, "warn")
	defer logs.close()
	o := options(file, logs.log, logs.program)
	telemetry.Observe(o.Metrics, logs.dropped)
	s, err := server.New(o)
	if err != nil {
		return err
	}
	if err := s.Listen(); err != nil {
		return err
	}
	r := ready{
		BaseURL:  "http://" + s.Addr("data") + "/v1",
		AdminURL: "http://" + s.Addr("admin"),
		Key:      key,
		AdminKey: adminKey,
	}
	if err := r.print(c.OutOrStdout(), asJSON); err != nil {
		return err
	}
	return s.Run(ctx)
}

// checkDemoAddresses rejects addresses that other machines can reach: the demo has no TLS, and no
// configuration file that could permit plain text.
func checkDemoAddresses(listen, adminListen string) error {
	for _, flag := range [...]struct{ name, address string }{{"listen", listen}, {"admin-listen", adminListen}} {
		if !config.Loopback(flag.address) {
			return fmt.Errorf("--%s %q: the demo listens only on loopback: write an address such as 127.0.0.1:9000; "+
				"for other addresses, run `tierway serve` with a configuration file", flag.name, plain(flag.address))
		}
	}
	return nil
}

func digest(key string) string { return fmt.Sprintf("%x", tenants.Digest(key)) }

type demoSettings struct {
	Key, AdminKey string // digests
	Tiers         []demoTier
}

type demoTier struct {
	Name, Model string
	Workers     []demoWorker
}

type demoWorker struct{ Name, URL string }

func startFleet(ctx context.Context) (tiers []demoTier, stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, end := range slices.Backward(stops) {
			end()
		}
	}
	for _, c := range engines.Demo(demoSeed) {
		e := engines.New(c)
		stops = append(stops, e.Close)
		err := e.PublishEvents(ctx, "tcp://127.0.0.1:0", "tcp://127.0.0.1:0")
		if err != nil {
			stop()
			return nil, nil, fmt.Errorf("publishing the KV events of the simulated engine %s: %w", c.Name, err)
		}
		s, err := engines.Start(e, "127.0.0.1:0")
		if err != nil {
			stop()
			return nil, nil, fmt.Errorf("starting the simulated engine %s: %w", c.Name, err)
		}
		stops = append(stops, s.Kill)
		if n := len(tiers); n == 0 || tiers[n-1].Model != c.Model {
			name, _, _ := strings.Cut(c.Name, "-")
			tiers = append(tiers, demoTier{Name: name, Model: c.Model})
		}
		last := &tiers[len(tiers)-1]
		last.Workers = append(last.Workers, demoWorker{Name: c.Name, URL: s.URL})
	}
	return tiers, stop, nil
}

const demoConfig = `
admin: { keys: [{ name: demo, sha256: {{.AdminKey}} }] }
auth: { keys: [{ name: demo, sha256: {{.Key}} }] }
store: { sql: "sqlite://:memory:" }
drain: { accept_grace: 10ms, timeout: 2s }
tiers:
{{- range .Tiers}}
  - name: {{.Name}}
    model: {{.Model}}
    engine: vllm
    serves: [chat, completions, responses, messages, embeddings, rerank, score, tokenize, moderations, images, audio]
    workers:
    {{- range .Workers}}
      - { name: {{.Name}}, url: "{{.URL}}" }
    {{- end}}
{{- end}}
models: { "gpt-4o-mini": small, "gpt-4o": medium, "gpt-4*": large, "gpt-5*": large, "claude-*haiku*": small, "claude-*": large, "text-embedding-*": small }
`

func (d demoSettings) config() (*config.File, error) {
	var text strings.Builder
	if err := fill(&text, demoConfig, d); err != nil {
		return nil, fmt.Errorf("writing the demo's configuration: %w", err)
	}
	return config.Parse("demo", []byte(text.String()), os.LookupEnv)
}

// ready is the data that a demo prints when it is ready.
type ready struct {
	BaseURL  string `json:"base_url"`
	AdminURL string `json:"admin_url"`
	Key      string `json:"api_key"`
	AdminKey string `json:"admin_key"`
}

// greeting shows first requests that can be copied unchanged.
const greeting = `Tierway demo: three tiers of simulated engines behind one gateway.

  base URL   {{.BaseURL}}
  API key    {{.Key}}
  admin      {{.AdminURL}}   key {{.AdminKey}}

Variables for the commands in the documentation:

export BASE_URL={{.BaseURL}} API_KEY={{.Key}} ADMIN_URL={{.AdminURL}} ADMIN_KEY={{.AdminKey}} TIERWAY_ADMIN_KEY={{.AdminKey}} TIERWAY_ADMIN_URL={{.AdminURL}}

A streamed response:

curl -sN {{.BaseURL}}/chat/completions -H 'Authorization: Bearer {{.Key}}' -H 'Content-Type: application/json' -d '{"model":"auto","stream":true,"max_tokens":20,"messages":[{"role":"user","content":"Say hello"}]}'

The classifier selects the large tier; the response headers explain the decision:

curl -si {{.BaseURL}}/chat/completions -H 'Authorization: Bearer {{.Key}}' -H 'Content-Type: application/json' -d '{"model":"auto","max_tokens":20,"messages":[{"role":"user","content":"Write a Python function that sorts a list"}]}'

A header selects the medium tier:

curl -si {{.BaseURL}}/chat/completions -H 'Authorization: Bearer {{.Key}}' -H 'X-Model-Tier: medium' -H 'Content-Type: application/json' -d '{"model":"auto","max_tokens":20,"messages":[{"role":"user","content":"Say hello"}]}'

The models that this key may use:

curl -s {{.BaseURL}}/models -H 'Authorization: Bearer {{.Key}}'

Press Ctrl-C to stop. One log line per request follows.
`

func (r ready) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(r)
	}
	return fill(w, greeting, r)
}

// fill executes a template of this file.
func fill(w io.Writer, text string, values any) error {
	t, err := template.New("").Parse(text)
	if err != nil {
		return err
	}
	return t.Execute(w, values)
}
