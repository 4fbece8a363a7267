package watch

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tierway/e2e/rig"
	"tierway/engines"
	"tierway/engines/chaos"
)

// records is a page of decision records in the admin API.
type records struct {
	Items []struct {
		Seq       int64  `json:"seq"`
		RequestID string `json:"request_id"`
	} `json:"items"`
	Next *string `json:"next_cursor"`
}

// listed returns the ids of the requests that match a query, newest first.
func (r *watchRig) listed(query url.Values) (ids []string) {
	r.T.Helper()
	var page records
	if err := json.Unmarshal([]byte(r.manage(http.StatusOK, http.MethodGet, "/admin/decisions?"+query.Encode(), "")),
		&page); err != nil {
		r.T.Fatal(err)
	}
	for _, d := range page.Items {
		ids = append(ids, d.RequestID)
	}
	return ids
}

// export returns all kept records as JSON lines.
func (r *watchRig) export() string {
	r.T.Helper()
	return r.read(r.open(r.T.Context(), "/admin/decisions", "Accept", "application/x-ndjson"))
}

// open sends a GET request to the admin plane. The response must be 200.
func (r *watchRig) open(ctx context.Context, path string, headers ...string) *http.Response {
	r.T.Helper()
	headers = append([]string{"Authorization", "Bearer " + rig.AdminKey}, headers...)
	resp := r.Open(r.RequestTo(ctx, http.MethodGet, r.AdminURL+path, "", headers...)).Resp
	if resp.StatusCode != http.StatusOK {
		r.T.Fatalf("GET %s is %d: %s", path, resp.StatusCode, r.read(resp))
	}
	return resp
}

// read returns the rest of a response.
func (r *watchRig) read(resp *http.Response) string {
	r.T.Helper()
	var b strings.Builder
	if _, err := bufio.NewReader(resp.Body).WriteTo(&b); err != nil {
		r.T.Error(err)
	}
	return b.String()
}

// TestRecordsAreFoundByTheirFields queries the records of successful and rejected requests by each
// field.
func TestRecordsAreFoundByTheirFields(t *testing.T) {
	r := newRig(t, 1, engines.Config{}, nil)
	const slowKey = "the-key-of-one-request-a-minute"
	r.Serve(rig.Settings{"auth": "{ keys: [ { name: acme, sha256: " + rig.Digest(rig.TenantKey) +
		" }, { name: slow, sha256: " + rig.Digest(slowKey) + ", limits: { rpm: 1, burst: 1 } } ] }"})
	begin := time.Now()
	const path = "/v1/chat/completions"
	good := r.post(200, path, rig.Chat("sim", "hello")).ID
	classified := r.post(200, path, rig.Chat("auto", "hello", `"stream":true`)).ID
	batch := r.post(200, path, rig.Chat("sim", "hello"), "X-Request-Priority", "batch").ID
	first := r.post(200, path, rig.Chat("sim", "hello"), "Authorization", "Bearer "+slowKey).ID
	limited := r.post(429, path, rig.Chat("sim", "hello"), "Authorization", "Bearer "+slowKey).ID
	stranger := r.post(401, path, rig.Chat("sim", "hello"), "Authorization", "Bearer nobody").ID
	unknown := r.post(404, path, rig.Chat("nobody-has-it", "hello")).ID
	broken := r.post(400, path, `{"model":`).ID
	if err := r.Workers[0].Set(chaos.Fault{Kind: chaos.Status, Status: 500}); err != nil {
		t.Fatal(err)
	}
	failed := r.post(502, path, rig.Chat("sim", "hello")).ID

	all := []string{failed, broken, unknown, stranger, limited, first, batch, classified, good}
	rig.Eventually(r.T, func() error {
		if got := r.listed(nil); !slices.Equal(got, all) {
			return fmt.Errorf("the records are %v, want %v", got, all)
		}
		return nil
	})
	for query, want := range map[string][]string{
		"status=401": {stranger}, "status=404": {unknown}, "status=429": {limited}, "status=400": {broken},
		"status=502":      {failed},
		"outcome=refused": {broken, unknown, stranger, limited}, "outcome=failed": {failed},
		"tenant=slow": {limited, first}, "tenant=slow&outcome=ok": {first}, "class=batch": {batch},
		"model=auto":           {classified},
		"code=model_not_found": {unknown}, "worker=w0": {failed, first, batch, classified, good}, "worker=w9": nil,
		"request_id=" + limited: {limited}, "q=" + strings.ToUpper(unknown): {unknown}, "limit=2": {failed, broken},
		"since=" + begin.Add(time.Hour).UTC().Format(time.RFC3339):    nil,
		"since=" + begin.Add(-time.Minute).UTC().Format(time.RFC3339): all,
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.listed(values); !slices.Equal(got, want) {
			t.Errorf("%s finds %v, want %v", query, got, want)
		}
	}
	r.checkEachIsFound(all)
}

// checkEachIsFound checks that each record, newest first, can be read by its id and is in an export.
func (r *watchRig) checkEachIsFound(all []string) {
	r.T.Helper()
	for _, id := range all {
		if got := r.manage(http.StatusOK, http.MethodGet, "/admin/decisions/"+id, ""); !strings.Contains(got,
			`"request_id":"`+id+`"`) {
			r.T.Errorf("the record of %s is %s", id, got)
		}
	}
	r.manage(http.StatusNotFound, http.MethodGet, "/admin/decisions/00000000-0000-4000-8000-ffffffffffff", "")
	var exported []string
	for _, d := range readRecords(r.T, strings.NewReader(r.export())) {
		exported = append(exported, d.RequestID)
	}
	if slices.Reverse(exported); !slices.Equal(exported, all) {
		r.T.Errorf("the export has %v, want %v", exported, all)
	}
}

// stream is an open stream of decisions.
type stream struct {
	t    *testing.T
	last string // the id of the last event
	raw  strings.Builder
	at   *bufio.Reader
	end  context.CancelFunc
}

// follow opens a stream of decisions. It starts after the event with the id after, unless that is
// empty.
func (r *watchRig) follow(after string) *stream {
	r.T.Helper()
	ctx, cancel := context.WithTimeout(r.T.Context(), rig.Patience)
	r.T.Cleanup(cancel)
	headers := []string{"Accept", "text/event-stream"}
	if after != "" {
		headers = append(headers, "Last-Event-ID", after)
	}
	return &stream{t: r.T, at: bufio.NewReader(r.open(ctx, "/admin/decisions/stream", headers...).Body), end: cancel}
}

// next waits for the next decision and returns the id of its request.
func (s *stream) next() string {
	s.t.Helper()
	name := ""
	for {
		line, err := s.at.ReadString('\n')
		if err != nil {
			s.t.Fatalf("the stream of decisions ended: %v", err)
		}
		s.raw.WriteString(line)
		line = strings.TrimSuffix(line, "\n")
		switch key, value, _ := strings.Cut(line, ": "); key {
		case "id":
			s.last = value
		case "event":
			name = value
		case "data":
			var d struct {
				RequestID string `json:"request_id"`
			}
			if err := json.Unmarshal([]byte(value), &d); err != nil || name != "decision" {
				s.t.Fatalf("an event %s is %s (%v)", name, value, err)
			}
			return d.RequestID
		}
	}
}

// TestDecisionStreamFollowsAndResumes: each decision arrives although no other request follows, and a client that
// reconnects misses none.
func TestDecisionStreamFollowsAndResumes(t *testing.T) {
	r := newRig(t, 1, engines.Config{}, nil)
	r.Serve(nil)
	ask := func() string { return r.post(http.StatusOK, "/v1/chat/completions", rig.Chat("sim", "hello")).ID }
	ask()
	s := r.follow("")
	for range 3 {
		id := ask()
		if got := s.next(); got != id {
			t.Fatalf("the stream has %s, want %s", got, id)
		}
	}
	s.end()
	away := []string{ask(), ask(),
		r.post(http.StatusNotFound, "/v1/chat/completions", rig.Chat("nobody-has-it", "hello")).ID}
	again := r.follow(s.last)
	for _, id := range away {
		if got := again.next(); got != id {
			t.Errorf("after the reconnect, the stream has %s, want %s", got, id)
		}
	}
	again.end()
}

// TestASignalLosesNoRecord: each request that was answered before the gateway exited has one record
// and one access line, across all rotated files.
func TestASignalLosesNoRecord(t *testing.T) {
	r := newRig(t, 2, engines.Config{Slots: 1024}, nil)
	r.Serve(rig.Settings{"decisions": "{ keep: 10, file: decisions.jsonl, max_size: 1MiB, max_files: 100 }"})
	want := r.sendUntilExit()
	all, files := r.readRecordFiles("decisions.jsonl")
	records, lines := map[string]int{}, map[string]int{}
	for _, d := range all {
		records[d.RequestID]++
	}
	for _, line := range r.AccessLines() {
		lines[fmt.Sprint(line["request_id"])]++
	}
	for id := range want {
		if records[id] != 1 || lines[id] != 1 {
			t.Errorf("the request %s has %d records and %d access lines", id, records[id], lines[id])
		}
	}
	if len(records) != len(lines) || len(all) != len(records) {
		t.Errorf("%d records of %d requests, %d access lines", len(all), len(records), len(lines))
	}
	if files < 2 {
		t.Errorf("the records of %d requests fill %d file", len(all), files)
	}
	t.Logf("%d answered, %d records in %d files", len(want), len(all), files)
}

// sendUntilExit sends requests until the gateway has exited on a signal. It returns how often each
// request was answered.
func (r *watchRig) sendUntilExit() map[string]int {
	r.T.Helper()
	answered := make(chan string, 1<<16)
	var clients sync.WaitGroup
	text := strings.Repeat("many words make a long chain of blocks, ", 200)
	for i := range 16 {
		clients.Go(func() {
			for n := 0; ; n++ {
				got := r.Post("/v1/chat/completions", rig.Chat("sim", fmt.Sprint(i, n, text), `"stream":true`))
				if got.Err != nil || got.Status != http.StatusOK {
					return // the gateway has exited
				}
				answered <- got.ID
			}
		})
	}
	rig.Eventually(r.T, func() error {
		if n := len(answered); n < 2000 { // their records fill more than one file
			return fmt.Errorf("%d requests are answered", n)
		}
		return nil
	})
	r.Signal(syscall.SIGTERM)
	r.WaitForEnd()
	clients.Wait()
	close(answered)
	times := map[string]int{}
	for id := range answered {
		times[id]++
	}
	return times
}
