package engines

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"tierway/memnet"
)

// accounts keeps the accounts of an engine's requests, with their ids.
type accounts struct {
	mu   sync.Mutex // guards the two below
	ids  []string
	list []Account
}

func (as *accounts) add(r *http.Request, a Account) {
	as.mu.Lock()
	defer as.mu.Unlock()
	as.ids, as.list = append(as.ids, r.Header.Get("X-Request-Id")), append(as.list, a)
}

// TestAccountHasTheReportedUsageOfEachRequest covers whole answers, streams, and clients that leave
// early.
func TestAccountHasTheReportedUsageOfEachRequest(t *testing.T) {
	const text = "one two three four"
	var told accounts
	e := New(Config{Model: "m", Ended: told.add, Script: func(_ string, body []byte) Script {
		s := Script{Text: text}
		if strings.Contains(string(body), "leave") {
			s.HoldAfter = 2
		}
		return s
	}})
	t.Cleanup(e.Close)
	network := memnet.New()
	server := network.NewServer(e)
	t.Cleanup(server.Close)
	transport := network.Transport()
	ask := func(id, body string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/v1/chat/completions",
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Request-Id", id)
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		for buf, got := make([]byte, 512), ""; !strings.Contains(got, "[DONE]"); {
			n, err := resp.Body.Read(buf)
			got += string(buf[:n])
			if err != nil || id == "gone" && strings.Contains(got, "two") {
				return
			}
		}
	}
	ask("whole", `{"model":"m","messages":[{"role":"user","content":"stays"}]}`)
	ask("stream", `{"model":"m","stream":true,"messages":[{"role":"user","content":"stays"}]}`)
	ask("gone", `{"model":"m","stream":true,"messages":[{"role":"user","content":"leave"}]}`)
	ask("wrong", `{"model":"other","messages":[{"role":"user","content":"stays"}]}`)
	server.Close() // waits for the handlers

	prompt := e.Stats().Written.Prompt / 3
	output := int64(len(pieces(text)))
	want := map[string]Account{
		"whole":  {Asked: prompt, Tokens: Tokens{Prompt: prompt, Output: output}, Whole: true},
		"stream": {Asked: prompt, Tokens: Tokens{Prompt: prompt, Output: output}, Whole: true},
		"gone":   {Asked: prompt, Tokens: Tokens{Prompt: prompt, Output: 2}},
		"wrong":  {},
	}
	got := map[string]Account{}
	for i, a := range told.list {
		got[told.ids[i]] = a
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Account{}), cmpopts.IgnoreFields(Account{}, "Began")); diff !=
		"" {
		t.Error(diff)
	}
}
