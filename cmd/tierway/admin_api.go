package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"tierway/tenants"
)

// adminKeyVariable is the environment variable of the admin key. A flag would show the key to
// all users of the machine.
const adminKeyVariable = "TIERWAY_ADMIN_KEY"

// adminURLVariable is the environment variable of the admin plane's URL, the default of --api.
const adminURLVariable = "TIERWAY_ADMIN_URL"

// defaultAdminURL is the default of --api for commands that need a running gateway.
func defaultAdminURL() string { return cmp.Or(os.Getenv(adminURLVariable), "http://127.0.0.1:8081") }

type adminAPI struct {
	base   *url.URL
	key    string
	client *http.Client
}

// newAdminAPI returns a client of the admin plane at an address. env returns the admin key.
func newAdminAPI(address string, env func(string) (string, bool)) (*adminAPI, error) {
	base, err := url.Parse(address)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" || base.User != nil ||
		base.RawQuery != "" {
		shown := fmt.Sprintf(" %q", address)
		if strings.Contains(address, "@") { // it may contain a password
			shown = ""
		}
		return nil,
			fmt.Errorf("--api%s: write the URL of the admin plane, such as http://127.0.0.1:8081, and set the key in $%s", shown,
				adminKeyVariable)
	}
	key, _ := env(adminKeyVariable)
	key = strings.TrimSpace(key)
	switch {
	case key == "":
		return nil, fmt.Errorf("--api %s: the environment variable %s is empty: set it to an admin key", address,
			adminKeyVariable)
	case strings.HasPrefix(key, tenants.TenantPrefix) && !tenants.WellFormed(key):
		return nil, fmt.Errorf("%s: the key's checksum is wrong: copy the whole key again", adminKeyVariable)
	case tenants.WellFormed(key) && !strings.HasPrefix(key, tenants.AdminPrefix):
		return nil, fmt.Errorf("%s: this is not an admin key: set it to a key that begins with %s", adminKeyVariable,
			tenants.AdminPrefix)
	}
	return &adminAPI{base: base, key: key, client: &http.Client{
		// The key is sent only to the given address, never to a proxy or the target of a redirect.
		Transport:     &http.Transport{Proxy: nil, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// maxAnswer limits a response in bytes.
const maxAnswer = 16 << 20

// call sends a request with a JSON body, unless body is nil, and decodes the response into out.
// It also returns the raw response. A response without success status is a *refusal.
func (a *adminAPI) call(ctx context.Context, method, path string, body, out any) (answer json.RawMessage, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var text []byte
	if body != nil {
		if text, err = json.Marshal(body); err != nil {
			return nil, fmt.Errorf("writing a request: %w", err)
		}
	}
	target := strings.TrimSuffix(a.base.String(), "/") + path
	r, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("making a request: %w", err)
	}
	r.Header.Set("Authorization", "Bearer "+a.key)
	r.Header.Set("Accept", "application/json")
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	res, err := a.client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("calling the gateway: %w", err)
	}
	defer res.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("reading the response to %s %s: %w", method, target, err)
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		r := &refusal{}
		if json.Unmarshal(answer, r) != nil {
			*r = refusal{} // not an RFC 9457 problem: only the status is known
		}
		r.Status, r.request = res.StatusCode, method+" "+target
		return nil, r
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return nil, fmt.Errorf("%s %s returned %d with an unexpected body: check that --api is the URL of the admin plane",
			method, target, res.StatusCode)
	}
	return answer, nil
}

// refusal is a response without success status, with its RFC 9457 problem.
type refusal struct {
	Status int     `json:"status"`
	Title  string  `json:"title"`
	Detail string  `json:"detail"`
	Errors []fault `json:"errors"`

	request string
}

type fault struct {
	Message  string `json:"message"`
	Location string `json:"location"`
	Value    any    `json:"value"`
}

func (f fault) String() string {
	where := f.Location
	switch f.Value.(type) {
	case string:
		where += fmt.Sprintf(" %q", f.Value)
	case float64, bool:
		where += fmt.Sprintf(" %v", f.Value)
	}
	if where = strings.TrimSpace(where); where == "" {
		return plain(f.Message)
	}
	return plain(where + ": " + f.Message)
}

func (r *refusal) Error() string {
	text := fmt.Sprintf("%s: %d %s", r.request, r.Status, http.StatusText(r.Status))
	if r.Detail != "" {
		text += ": " + plain(r.Detail)
	}
	for _, e := range r.Errors {
		text += "; " + e.String()
	}
	if r.Status == http.StatusUnauthorized {
		text += " (the key comes from $" + adminKeyVariable + ")"
	}
	return text
}
