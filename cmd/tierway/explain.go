package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"tierway/server"
	"tierway/tiers"
)

// explainFlags are the flags of explain.
type explainFlags struct {
	config, file, path string
	headers            []string
	json               bool
}

func explainCommand() *cobra.Command {
	var f explainFlags
	c := &cobra.Command{
		Use:   "explain",
		Short: "Say which tier and worker a request would get, and why, without sending it",
		Example: "  tierway explain -c config.yaml -f request.json\n" +
			"  tierway explain -c config.yaml -f request.json -H 'X-Model-Tier: large'\n" +
			`  echo '{"model":"auto","messages":[{"role":"user","content":"Hi"}]}' | tierway explain -c config.yaml -f -`,
		Long: "Walks the request through the code that serves requests, with every worker idle and up.\n" +
			"Without an Authorization header it is explained for a tenant who may use everything.\n" +
			"Exits with 0 when the request would be sent, 1 when it would be refused, 2 on wrong usage.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	c.Flags().StringVarP(&f.config, "config", "c", "config.yaml", "the configuration")
	c.Flags().StringVarP(&f.file, "file", "f", "", "the request's JSON body; - is standard input")
	c.Flags().StringArrayVarP(&f.headers, "header", "H", nil, "a header of the request, as 'Name: value'; may be repeated")
	c.Flags().StringVar(&f.path, "path", "", "the path that it is sent to (default: told from the body)")
	c.Flags().BoolVar(&f.json, "json", false, "write JSON")
	if err := c.MarkFlagRequired("file"); err != nil {
		panic(err) // the flag stands two lines above
	}
	return c
}

// run explains one request.
func (f explainFlags) run(c *cobra.Command) error {
	file, err := loadConfig(c, f.config)
	if err != nil {
		return err
	}
	body, err := readFile(f.file, c.InOrStdin())
	if err != nil {
		return fmt.Errorf("reading the request: %w", err)
	}
	r, err := f.request(body)
	if err != nil {
		return err
	}
	o := options(file, slog.New(slog.DiscardHandler), nil)
	o.Offline = true
	s, err := server.New(o)
	if err != nil {
		return err
	}
	e := s.Explain(r)
	if e.Status == http.StatusNotFound && f.path == "" && r.URL.Path == embeddingsPath {
		// A body with an input alone may be either; this one is no embedding.
		f.path = responsesPath
		if r, err = f.request(body); err != nil {
			return err
		}
		e = s.Explain(r)
	}
	if f.json {
		out := json.NewEncoder(c.OutOrStdout())
		out.SetIndent("", "  ")
		err = out.Encode(e)
	} else {
		err = printExplanation(c.OutOrStdout(), e)
	}
	if err == nil && e.Status != 0 {
		return exit(1)
	}
	return err
}

// request makes the request that the flags describe.
func (f explainFlags) request(body []byte) (*http.Request, error) {
	path := f.path
	if path == "" {
		path = pathOf(body)
	}
	r, err := http.NewRequest(http.MethodPost, path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("--path %q: %w", f.path, err)
	}
	r.Header.Set("Content-Type", "application/json")
	for _, h := range f.headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return nil, fmt.Errorf("-H %q: write 'Name: value'", name)
		}
		r.Header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	return r, nil
}

// readFile reads a file, or standard input for "-".
func readFile(path string, in io.Reader) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(in)
	}
	return os.ReadFile(path)
}

// The paths of bodies that look alike.
const (
	responsesPath  = "/v1/responses"
	embeddingsPath = "/v1/embeddings"
)

// pathOf tells by a body's fields where such a body is sent.
func pathOf(body []byte) string {
	var b map[string]json.RawMessage
	if json.Unmarshal(body, &b) != nil {
		return "/v1/chat/completions" // the parser says what is wrong with it
	}
	has := func(name string) bool { _, ok := b[name]; return ok }
	switch {
	case has("messages") && has("system"):
		return "/v1/messages"
	case has("messages"):
		return "/v1/chat/completions"
	case has("prompt"):
		return "/v1/completions"
	case has("input") && (has("instructions") || has("max_output_tokens") || has("previous_response_id") || has("tools")):
		return responsesPath
	case has("input") && bytes.Contains(b["input"], []byte(`"role"`)):
		return responsesPath
	case has("input"):
		return embeddingsPath
	}
	return "/v1/chat/completions"
}

// printExplanation writes an explanation for a reader at a terminal.
func printExplanation(w io.Writer, e *server.Explanation) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	if e.Tier != "" {
		line("tier", "%s", e.Tier)
		line("rule", "%s", withNote(e.Rule, e.Note))
		line("model", "%s", e.Model)
	}
	if e.Worker != "" {
		line("worker", "%s (%s: %s)", e.Worker, e.Policy, e.Reason)
	}
	if e.Dialect != "" {
		line("request", "%s, about %d prompt tokens, max_tokens %s, %d blocks", e.Dialect, e.PromptTokens, orNone(e.MaxTokens), e.Blocks)
		line("tenant", "%s, class %s", e.Tenant, e.Class)
	}
	if e.Classified != nil {
		line("classified", "%s by %s", e.Classified.Tier, e.Classified.Rule)
		for _, s := range e.Classified.Signals {
			line("signal", "%s", signalText(s))
		}
	}
	for _, c := range e.Candidates {
		line("candidate", "%s, load %.0f", c.Worker, c.Score)
	}
	for _, n := range e.Notes {
		line("note", "%s", n)
	}
	if e.Status != 0 {
		line("refused", "%d %s", e.Status, strings.TrimSpace(e.Error))
	}
	return t.Flush()
}

func withNote(rule, note string) string {
	if note == "" {
		return rule
	}
	return rule + " (" + note + ")"
}

func orNone(n int64) string {
	if n == 0 {
		return "none"
	}
	return fmt.Sprint(n)
}

// signalText says what one signal asks for, and by what number.
func signalText(s tiers.Signal) string {
	asks := "asks for nothing"
	if s.Tier != "" {
		asks = "asks for " + s.Tier
	}
	text := fmt.Sprintf("%s %s", s.Rule, asks)
	if s.Threshold > 0 {
		compared := "not over"
		if s.Tier != "" {
			compared = "over"
		}
		if s.Rule == "keyword" {
			compared = "of"
		}
		text += fmt.Sprintf(": %g %s %g", s.Value, compared, s.Threshold)
	}
	if s.Exact {
		text += ", counted"
	}
	if len(s.Matched) > 0 {
		text += ", matched " + strings.Join(s.Matched, ", ")
	}
	return text
}
