package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"tierway/server/admin"
)

func (f explainFlags) runLive(c *cobra.Command) error {
	a, err := newAdminAPI(f.api, os.LookupEnv)
	if err != nil {
		return err
	}
	order, err := f.order(c)
	if err != nil {
		return err
	}
	e := &admin.RouteExplanation{}
	answer, err := a.call(c.Context(), http.MethodPost, explainPath, order, e)
	if err == nil && e.Status == http.StatusNotFound && f.path == "" && order.Path == embeddingsPath {
		order.Path, e = responsesPath, &admin.RouteExplanation{} // as in the offline case
		answer, err = a.call(c.Context(), http.MethodPost, explainPath, order, e)
	}
	if r, ok := errors.AsType[*refusal](err); ok && r.Status == http.StatusRequestEntityTooLarge {
		return fmt.Errorf("%w: request and draft together may have 1 MiB; send a longer request normally, then explain it "+
			"with --decision and its X-Request-ID", err)
	}
	if err != nil {
		return byFlag(unexplained(showProblems(c, err)))
	}
	return f.show(c, answer, e)
}

// flagOf maps parts of an order to their flags.
var flagOf = map[string]string{
	"body.tenant": "--tenant", "body.key_id": "--key-id", "body.class": "--priority", "body.decision": "--decision",
	"body.request": "--file", "body.path": "--path", "body.headers": "--header", "body.draft": "--draft",
	"body.hooks": "--hooks",
}

// byFlag rewrites a gateway's objections to an order in terms of flags. It returns other errors
// unchanged.
func byFlag(err error) error {
	var r *refusal
	if !errors.As(err, &r) || r.Status != http.StatusUnprocessableEntity || len(r.Errors) == 0 {
		return err
	}
	var texts []string
	for _, e := range r.Errors {
		flag, known := flagOf[e.Location]
		if !known {
			return err
		}
		e.Location = flag
		texts = append(texts, e.String())
	}
	return errors.New(strings.Join(texts, "; "))
}

const explainPath = "/admin/route/explain"

func (f explainFlags) order(c *cobra.Command) (*admin.ExplainOrder, error) {
	o := &admin.ExplainOrder{Tenant: f.tenant, KeyID: f.key, Class: f.class, Decision: f.decision, Hooks: f.hooks}
	if f.draft != "" {
		text, err := readFile(c, f.draft, maxConfig)
		if err != nil {
			return nil, fmt.Errorf("reading the draft: %w", err)
		}
		o.Draft = new(string(text))
	}
	if f.decision != "" {
		if f.path != "" || len(f.headers) > 0 {
			return nil, fmt.Errorf("--decision: a past request keeps its own path and headers; remove --path and -H")
		}
		return o, nil
	}
	if f.file == "-" && f.draft == "-" {
		return nil, fmt.Errorf("-f and --draft: only one of them can read standard input")
	}
	body, err := readFile(c, f.file, maxRequest)
	if err != nil {
		return nil, fmt.Errorf("reading the request: %w", err)
	}
	if !json.Valid(body) {
		return nil, fmt.Errorf("-f %s: the file is not valid JSON; write the JSON body of a request", f.file)
	}
	r, err := f.request(body)
	if err != nil {
		return nil, err
	}
	o.Request, o.Path, o.Headers = body, r.URL.RequestURI(), map[string]string{}
	for name, values := range r.Header {
		if name != "Content-Type" {
			o.Headers[name] = strings.Join(values, ", ")
		}
	}
	return o, nil
}
