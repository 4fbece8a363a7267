package watch

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"

	"tierway/decisions"
	"tierway/e2e/gateway"
	"tierway/e2e/rig"
	"tierway/engines/chaos"
)

// checkBalance compares the telemetry with the requests that the clients have sent. All requests
// must have ended.
func (s *storm) checkBalance() {
	s.T.Helper()
	rig.Eventually(s.T, func() error {
		if n := s.Sum("tierway_decisions_written_total"); n != float64(len(s.sent)) {
			return fmt.Errorf("%v records are written, %d requests were sent", n, len(s.sent))
		}
		return nil
	})
	m, err := s.Metrics()
	if err != nil {
		s.T.Fatal(err)
	}
	s.checkQueuesEmpty()
	s.Stop() // writes the buffered records
	all, _ := s.readRecordFiles("decisions.jsonl")
	s.checkRequests(all)
	s.checkCounts(m, all)
	s.checkAttempts(m, all)
}

// checkRequests checks that each request has one record and one access line, and that both agree.
func (s *storm) checkRequests(all []decisions.Decision) {
	s.T.Helper()
	records, lines := map[string]int{}, map[string]int{}
	recorded := map[string]string{}
	for _, d := range all {
		records[d.RequestID]++
		recorded[d.RequestID] = fmt.Sprint(d.Status, d.Result, d.Tenant, d.Tier, d.Worker, d.Code, d.Limit, d.Shed)
	}
	text := func(v any) string {
		if v == nil {
			return ""
		}
		return fmt.Sprint(v)
	}
	for _, l := range s.AccessLines() {
		id := text(l["request_id"])
		lines[id]++
		line := fmt.Sprint(l["status"], text(l["outcome"]), text(l["tenant"]), text(l["tier"]), text(l["worker"]),
			text(l["code"]), text(l["limit"]), text(l["shed"]))
		if line != recorded[id] {
			s.T.Errorf("the access line of %s has %q, its record %q", id, line, recorded[id])
		}
	}
	if !maps.Equal(s.sent, records) {
		s.T.Errorf("%d requests were sent, %d have records: %s", len(s.sent), len(records), difference(s.sent, records))
	}
	if !maps.Equal(s.sent, lines) {
		s.T.Errorf("%d requests were sent, %d have access lines: %s", len(s.sent), len(lines), difference(s.sent, lines))
	}
}

// difference lists up to five ids with different counts.
func difference(a, b map[string]int) string {
	var some []string
	for id := range a {
		if a[id] != b[id] {
			some = append(some, fmt.Sprintf("%s %d and %d", id, a[id], b[id]))
		}
	}
	for id := range b {
		if a[id] == 0 {
			some = append(some, fmt.Sprintf("%s 0 and %d", id, b[id]))
		}
	}
	return strings.Join(some[:min(len(some), 5)], ", ")
}

// checkCounts compares the counters of requests, tenants and tokens with the records.
func (s *storm) checkCounts(m gateway.Samples, all []decisions.Decision) {
	s.T.Helper()
	same := func(what string, have float64, want int64) {
		s.T.Helper()
		if have != float64(want) {
			s.T.Errorf("%s is %v, want %d", what, have, want)
		}
	}
	same("tierway_requests_started_total", m.Sum("tierway_requests_started_total"), int64(len(s.sent)))
	same("tierway_decisions_dropped_total", m.Sum("tierway_decisions_dropped_total"), 0)
	counts := map[string]int64{}
	for _, d := range all {
		counts[fmt.Sprintf("outcome=%q", d.Result)]++
		counts[fmt.Sprintf("dialect=%q outcome=%q", d.Dialect, d.Result)]++
		if d.Tier == "small" {
			counts[fmt.Sprintf("tier=%q outcome=%q", d.Tier, d.Result)]++
		}
		if d.Limit != "" {
			counts[fmt.Sprintf("limit=%q", d.Limit)]++
		}
		counts[`kind="prompt"`] += d.Usage.Prompt
		counts[`kind="cached"`] += d.Usage.Cached
		counts[`kind="output"`] += d.Usage.Output
	}
	for labels, want := range counts {
		pairs := strings.Fields(labels)
		switch {
		case strings.HasPrefix(labels, "limit"):
			same("refusals by "+labels, m.Sum("tierway_limit_refusals_total", pairs...), want)
			same("tenants' refusals by "+labels, m.Sum("tierway_tenant_refusals_total", pairs...), want)
		case strings.HasPrefix(labels, "kind"):
			same("tenants' tokens with "+labels, m.Sum("tierway_tenant_tokens_total", pairs...), want)
		default:
			same("requests with "+labels, m.Sum("tierway_requests_total", pairs...), want)
			if len(pairs) == 1 {
				same("tenants' requests with "+labels, m.Sum("tierway_tenant_requests_total", pairs...), want)
			}
		}
	}
	for _, outcome := range []decisions.Result{decisions.OK, decisions.Refused, decisions.Failed, decisions.Truncated,
		decisions.ClientGone} {
		if counts[fmt.Sprintf("outcome=%q", outcome)] == 0 {
			s.T.Errorf("no request ended with %s", outcome)
		}
	}
	if counts[`limit="rpm"`] == 0 || counts[`limit="concurrent"`] == 0 || m.Sum("tierway_queue_shed_total") == 0 {
		s.T.Errorf("a limit was never reached, or the queue was never full: %v", counts)
	}
}

// checkAttempts compares the counters of attempts with the records and the workers.
func (s *storm) checkAttempts(m gateway.Samples, all []decisions.Decision) {
	s.T.Helper()
	attempts, waited := 0, 0
	for _, d := range all {
		if d.Tier == "small" { // the counters of the removable pool restart at 0
			attempts += len(d.Attempts)
		}
		if d.QueueMs > 0 {
			waited++
		}
	}
	for _, name := range []string{"tierway_attempts_total", "tierway_route_decisions_total"} {
		if got := m.Sum(name, `tier="small"`); got != float64(attempts) {
			s.T.Errorf("%s is %v, %d attempts are recorded", name, got, attempts)
		}
	}
	if waited == 0 {
		s.T.Error("no request waited")
	}
	s.T.Logf("%d attempts, %d reached workers, %d requests waited", attempts, s.checkArrivals(all), waited)
}

// checkArrivals checks that each request at a worker belongs to an attempt, and returns their number.
// If a connection ends before the first byte of the response, the gateway sends the request once more
// on another connection, in the same attempt.
func (s *storm) checkArrivals(all []decisions.Decision) (total int) {
	s.T.Helper()
	s.watchRig.mu.Lock()
	asked := maps.Clone(s.asked)
	s.watchRig.mu.Unlock()
	again := int64(0)
	for _, w := range append(s.Workers, s.passing) {
		hits := w.Stats().Hits
		again += hits[chaos.Stale] + hits[chaos.Reset] + hits[chaos.Close]
	}
	attempts := 0
	for _, d := range all {
		n := asked[d.RequestID]
		if delete(asked, d.RequestID); n > 2*len(d.Attempts) {
			s.T.Errorf("the request %s reached workers %d times in %d attempts", d.RequestID, n, len(d.Attempts))
		}
		total, attempts = total+n, attempts+len(d.Attempts)
	}
	if len(asked) > 0 {
		s.T.Errorf("%d requests at workers have no record", len(asked))
	}
	if int64(total)-again > int64(attempts) {
		s.T.Errorf("%d requests reached workers in %d attempts, at most %d of them twice", total, attempts, again)
	}
	return total
}

// checkQueuesEmpty checks the queues in the admin API.
func (s *storm) checkQueuesEmpty() {
	s.T.Helper()
	var queues struct {
		Items []struct {
			Name    string `json:"name"`
			Depth   int    `json:"depth"`
			Bytes   int64  `json:"bytes"`
			Classes map[string]struct {
				Depth      int   `json:"depth"`
				Entered    int64 `json:"entered"`
				Dispatched int64 `json:"dispatched"`
				Abandoned  int64 `json:"abandoned"`
				Expired    int64 `json:"expired"`
				Moved      int64 `json:"moved"`
			} `json:"classes"`
		} `json:"items"`
	}
	if err := json.Unmarshal([]byte(s.manage(http.StatusOK, http.MethodGet, "/admin/queues", "")), &queues); err != nil {
		s.T.Fatal(err)
	}
	if len(queues.Items) != 2 {
		s.T.Errorf("%d queues, want 2", len(queues.Items))
	}
	for _, q := range queues.Items {
		if q.Depth != 0 || q.Bytes != 0 {
			s.T.Errorf("the queue of %s has %d requests and %d bytes", q.Name, q.Depth, q.Bytes)
		}
		for class, c := range q.Classes {
			if c.Depth != 0 || c.Entered != c.Dispatched+c.Abandoned+c.Expired+c.Moved {
				s.T.Errorf("the queue of %s, %s: %+v", q.Name, class, c)
			}
		}
	}
}
