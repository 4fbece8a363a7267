package workers

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tierway/http1"
)

const headerCanary = "canary-of-a-header-91"

// TestHeadersGoWithEverything that is sent to a worker: requests, health checks, model lists and metrics. They replace
// what a client sends, in any spelling.
func TestHeadersGoWithEverything(t *testing.T) {
	for engine, want := range map[string]string{"auto": "Basic " + headerCanary, "anthropic": "Basic " + headerCanary} {
		synctest.Test(t, func(t *testing.T) {
			f := &fakeSender{}
			fleet := NewFleet(Options{send: func(Spec) Sender { return f }})
			spec := Spec{Config: Config{Name: "w", URL: "http://h:1", Headers: Headers{
				"authorization": "Basic " + headerCanary, "X-Gate": "open", "user-agent": "front/1", "cookie": "a=b",
			}}, Engine: engine}
			fleet.Sync([]Spec{spec})
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			go fleet.Run(ctx)
			time.Sleep(time.Minute)
			client := http.Header{"Authorization": {"Bearer tw-client"}, "Cookie": {"c=d"}, "X-Gate": {"1", "2"},
				"X_gate": {"3"}, "User-Agent": {"OpenAI/Python"}, "X-Other": {"kept"}}
			request := &http1.Request{Method: "POST", Path: "/v1/x", Header: client}
			if _, err := fleet.Get("w").Send(t.Context(), request); err != nil {
				t.Fatal(err)
			}
			if got := f.last().Header; got.Get("X-Other") != "kept" || got["X_gate"] != nil {
				t.Errorf("%s: the client's headers are %v", engine, got)
			}
			paths := map[string]bool{}
			f.mu.Lock()
			defer f.mu.Unlock()
			for _, r := range f.sent {
				paths[r.Path] = true
				h := r.Header
				if h.Get("Authorization") != want || strings.Join(h["X-Gate"], ",") != "open" ||
					h.Get("User-Agent") != "front/1" || h.Get("Cookie") != "a=b" {
					t.Errorf("%s: %s has %v", engine, r.Path, h)
				}
			}
			if len(paths) < map[string]int{"auto": 4, "anthropic": 2}[engine] {
				t.Errorf("%s: only %v were read", engine, paths)
			}
		})
	}
}

// TestChangedHeadersApplyAtOnce, without a new connection, and the worker is checked by itself: another server may
// stand behind other headers.
func TestChangedHeadersApplyAtOnce(t *testing.T) {
	fleet := fakeFleet(Options{})
	spec := namedSpec("w", "http://h:1")
	spec.Headers = Headers{"X-Gate": "Bearer " + headerCanary}
	other := namedSpec("v", "http://h:1")
	other.Pool = "other"
	fleet.Sync([]Spec{spec, other})
	w := fleet.Get("w")
	before, link := senderOf(w), w.link.Load()
	if loops := loopsByServer(fleet.Workers()); len(loops) != 2 {
		t.Errorf("%d loops check two workers with different headers", len(loops))
	}
	fleet.Sync([]Spec{w.Spec(), other})
	if w.link.Load() != link {
		t.Error("a reload without a change replaced the link")
	}
	spec.Headers = Headers{"X-Gate": "second-value"}
	fleet.Sync([]Spec{spec, other})
	if fleet.Get("w") != w || senderOf(w) != before || before.closed > 0 {
		t.Error("another header made another worker or connection")
	}
	if _, err := w.Send(t.Context(), postRequest("/v1/x", "x")); err != nil ||
		before.last().Header.Get("X-Gate") != "second-value" {
		t.Errorf("sent %v, %v", before.last().Header, err)
	}
	for _, text := range []string{"wrong: " + headerCanary, "second-value?"} {
		if !w.RepeatsKey([]byte(text)) {
			t.Errorf("a value that an answer may repeat is unknown: %s", text)
		}
	}
	if w.RepeatsKey([]byte("Bearer")) {
		t.Error("a usual word is a secret")
	}
	spec.Headers = nil
	fleet.Sync([]Spec{spec, other})
	if _, err := w.Send(t.Context(), postRequest("/v1/x", "x")); err != nil || before.last().Header["X-Gate"] != nil {
		t.Errorf("a removed header was sent: %v, %v", before.last().Header, err)
	}
}

func TestNoFormatPrintsHeaders(t *testing.T) {
	spec := keyedSpec("http://h:1")
	spec.Headers = Headers{"X-Gate": headerCanary}
	w := workerOver(spec, new(fakeSender))
	type holder struct{ w *Worker }
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "spec", spec, "headers", spec.Headers, "worker", w)
	for _, out := range []string{fmt.Sprintf("%v %+v %#v", spec, spec.Headers, spec.Config), log.String(), string(text),
		fmt.Sprintf("%+v %#v", w, holder{w}), fmt.Sprintf("%+v", *w.link.Load()),
		fmt.Sprintf("%+v", struct{ s Spec }{w.spec})} {
		if strings.Contains(out, headerCanary) {
			t.Errorf("printed %s", out)
		}
	}
	if got := w.Spec().Headers["X-Gate"]; got != headerCanary {
		t.Errorf("the spec has %q", got)
	}
}
