package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"tierway/config"
	"tierway/server"
	"tierway/server/admin"
)

type explainFlags struct {
	config, file, path string
	headers            []string
	json               bool

	live, hooks                              bool
	api, tenant, key, class, draft, decision string
}

func explainCommand() *cobra.Command {
	var f explainFlags
	c := &cobra.Command{
		Use:   "explain",
		Short: "Show which tier and worker a request would get, and why, without sending it",
		Example: "  tierway explain -c config.yaml -f request.json -H 'X-Model-Tier: large'\n" +
			`  echo '{"model":"auto","messages":[{"role":"user","content":"Hi"}]}' | tierway explain -c config.yaml -f -` +
			"\n" +
			"  TIERWAY_ADMIN_KEY=tw-adm-… tierway explain --live --tenant acme --draft draft.yaml -f request.json\n" +
			"  TIERWAY_ADMIN_KEY=tw-adm-… tierway explain --live --decision 4f0c2b1e-…",
		Long: "Evaluates the request with the code that serves requests, without sending, booking or counting it.\n" +
			"Without --live, all workers are assumed up and idle; without an Authorization header, the request belongs\n" +
			"to a tenant without restrictions. With --live, a running gateway evaluates it with current loads and limits.\n" +
			"Exit status: 0 the request would be sent or queued; 1 it would be rejected (with --draft: by the draft);\n" +
			"2 no result because of wrong usage, an invalid configuration or draft, or an unreachable gateway.",
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	flags := c.Flags()
	flags.StringVarP(&f.config, "config", "c", "config.yaml", "configuration file")
	flags.StringVarP(&f.file, "file", "f", "", "file with the request's JSON body; - for standard input")
	flags.StringArrayVarP(&f.headers, "header", "H", nil, "request header, as 'Name: value'; may be repeated")
	flags.StringVar(&f.path, "path", "", "URL path of the request (default: detected from the body)")
	flags.BoolVar(&f.json, "json", false, "print JSON")
	flags.BoolVar(&f.live, "live", false, "let a running gateway evaluate the request")
	flags.StringVar(&f.api, "api", defaultAdminURL(),
		"with --live: URL of the gateway's admin plane; its key comes from $"+adminKeyVariable)
	flags.StringVar(&f.tenant, "tenant", "", "with --live: tenant of the request")
	flags.StringVar(&f.key, "key-id", "", "with --live: ID of the key that sends the request")
	flags.StringVar(&f.class, "priority", "", "with --live: priority class that the request asks for")
	flags.StringVar(&f.draft, "draft", "", "with --live: complete configuration file to compare with the active one")
	flags.BoolVar(&f.hooks, "hooks", false, "with --live: call the hooks with the request")
	flags.StringVar(&f.decision, "decision", "", "with --live: ID of a past request, instead of --file")
	c.MarkFlagsOneRequired("file", "decision")
	c.MarkFlagsMutuallyExclusive("file", "decision")
	c.MarkFlagsMutuallyExclusive("live", "config")
	return c
}

func (f explainFlags) run(c *cobra.Command) error {
	if f.live {
		return f.runLive(c)
	}
	for _, name := range []string{"api", "tenant", "key-id", "priority", "draft", "decision", "hooks"} {
		if c.Flags().Changed(name) {
			return fmt.Errorf("--%s needs a running gateway: add --live", name)
		}
	}
	file, err := loadConfig(c, f.config)
	if err != nil {
		return unexplained(err)
	}
	body, err := readFile(c, f.file, maxRequest)
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
		// A body with only an input may belong to either path; it is not an embedding.
		f.path = responsesPath
		if r, err = f.request(body); err != nil {
			return err
		}
		e = s.Explain(r)
	}
	return f.show(c, e, &admin.RouteExplanation{Explanation: *e})
}

// unexplained converts the exit status of an invalid configuration or draft to 2, because 1
// means a rejected request. The problems were printed before.
func unexplained(err error) error {
	var status exit
	if errors.As(err, &status) {
		return exit(2)
	}
	return err
}

// show prints an explanation, or answer as JSON, and returns the exit status of the outcome.
func (f explainFlags) show(c *cobra.Command, answer any, e *admin.RouteExplanation) error {
	var err error
	if f.json {
		err = printJSON(c.OutOrStdout(), answer)
	} else {
		err = printExplanation(c.OutOrStdout(), e)
	}
	last := &e.Explanation
	if e.Draft != nil { // the exit status is that of the draft
		last = e.Draft
	}
	if err == nil && last.Outcome == "reject" {
		return exit(1)
	}
	return err
}

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

// Limits of what a command reads at once, in bytes.
const (
	maxConfig  = 4 << 20  // limit of a configuration file
	maxRequest = 64 << 20 // twice the default of max_body_bytes
)

// openInput opens a file, or standard input for "-". name is its name in messages.
func openInput(c *cobra.Command, path string) (in io.ReadCloser, name string, err error) {
	if path == "-" {
		return io.NopCloser(c.InOrStdin()), "standard input", nil
	}
	in, err = os.Open(path)
	return in, path, err
}

// withoutPath returns the cause of a file's error, for messages that name the file themselves.
func withoutPath(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}

// readFile reads a file, or standard input for "-", of at most that many bytes.
func readFile(c *cobra.Command, path string, maxBytes int64) ([]byte, error) {
	in, name, err := openInput(c, path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, maxBytes+1))
	if err == nil && int64(len(text)) > maxBytes {
		err = fmt.Errorf("%s is longer than %v: check that it is the right file", name, config.Size(maxBytes))
	}
	return text, err
}

// Paths with similar bodies.
const (
	responsesPath  = "/v1/responses"
	embeddingsPath = "/v1/embeddings"
)

// pathOf detects the URL path of a body from its fields.
func pathOf(body []byte) string {
	var b map[string]json.RawMessage
	if json.Unmarshal(body, &b) != nil {
		return "/v1/chat/completions" // the parser reports the error
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
