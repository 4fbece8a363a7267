package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// withWorkers is a configuration of one tier with the given workers.
func withWorkers(workers string) string {
	return keys + "tiers: [{name: a, model: m, workers: [" + workers + "]}]\n"
}

// specsOf returns the workers of a file: name, URL, rank and weight.
func specsOf(f *File) (all []string) {
	for _, s := range f.Specs() {
		rank := "-"
		if s.Rank != nil {
			rank = fmt.Sprint(*s.Rank)
		}
		all = append(all, fmt.Sprint(s.Name, " ", s.URL, " ", rank, " ", *s.Weight))
	}
	return all
}

func TestRanksAreWorkers(t *testing.T) {
	f := parsed(t, withWorkers(`{name: w, url: "http://h:1/base", ranks: 2, weight: 3}, {name: one, url: "http://g:1@5"},
  {name: two, url: "http://[::1]:9@0"}, {name: plain, url: "http://f:1"}`), nil)
	want := []string{"w@0 http://h:1/base 0 3", "w@1 http://h:1/base 1 3", "one http://g:1 5 1", "two http://[::1]:9 0 1",
		"plain http://f:1 - 1"}
	if diff := cmp.Diff(want, specsOf(f)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if again := parsed(t, string(printed(f)), nil); cmp.Diff(want, specsOf(again)) != "" {
		t.Errorf("the printed file has other workers:\n%s", cmp.Diff(want, specsOf(again)))
	}
	// The weight of the entry is not that of a rank: an override of it would be invisible.
	over := f.WithOverrides(map[string]int{"w@1": 0, "one": 7, "w": 9})
	want[1], want[2] = "w@1 http://h:1/base 1 0", "one http://g:1 5 7"
	if diff := cmp.Diff(want, specsOf(over)); diff != "" {
		t.Errorf("with overrides: -want +got:\n%s", diff)
	}
	changed := Changes(f, parsed(t, withWorkers(`{name: w, url: "http://h:1/base", ranks: 4, weight: 3},
  {name: one, url: "http://g:1@6"}, {name: two, url: "http://[::1]:9@0"}, {name: plain, url: "http://f:1"}`), nil))
	var got []string
	for _, c := range changed {
		got = append(got, fmt.Sprint(c.Path, " ", c.Old, " ", c.New, " ", c.Effect))
	}
	if diff := cmp.Diff([]string{"tiers[a].workers[w].ranks 2 4 drain",
		"tiers[a].workers[one].url http://g:1@5 http://g:1@6 drain"}, got); diff != "" {
		t.Errorf("changes: -want +got:\n%s", diff)
	}
}

func TestRanksAreChecked(t *testing.T) {
	const events = "policy: {name: kv_aware}\nkv_events: {listen: \"127.0.0.1:1234\"}\n"
	for name, c := range map[string]struct {
		src  string
		want []string
	}{
		"one entry for each rank": {withWorkers(`{name: w0, url: "http://h:1@0"}, {name: w1, url: "http://h:1@1"}`), nil},
		"ranks in two tiers": {keys + `tiers:
  - {name: a, model: m, workers: [{name: w0, url: "http://h:1", ranks: 2}]}
  - {name: b, model: n, workers: [{name: w1, url: "http://h:1@0"}]}
`, []string{`warning: tiers[1].workers[0].url: "http://h:1@0" is also the server of tiers[0].workers[0].url: ` +
			`limits such as max_inflight apply to each entry separately (divide the server's capacity among its entries)`}},
		"both forms": {withWorkers(`{name: w, url: "http://h:1@0", ranks: 2}`), []string{
			`tiers[0].workers[0].ranks: the url has the rank @0: an entry is one rank, or all of them ` +
				`(remove the rank from the url, or remove ranks)`}},
		"no ranks": {withWorkers(`{name: w, url: "http://h:1", ranks: 0}`), []string{
			`tiers[0].workers[0].ranks: want an integer from 1 to 64, got "0"`}},
		"a high rank": {withWorkers(`{name: w, url: "http://h:1@64"}`), []string{
			`tiers[0].workers[0].url: "http://h:1@64" has the rank 64; a server has at most 64 ranks ` +
				`(write a rank from 0 to 63)`}},
		"a rank twice": {withWorkers(`{name: w0, url: "http://h:1@1"}, {name: w1, url: "http://H:1/@1"}`), []string{
			`tiers[0].workers[1].url: "http://H:1/@1" is already the rank of tiers[0].workers[0].url ` +
				`(remove one of them: a rank appears once per tier or pool)`}},
		"with and without": {withWorkers(`{name: w0, url: "http://h:1@1"}, {name: w1, url: "http://h:1"}`), []string{
			`tiers[0].workers[1].url: "http://h:1" and tiers[0].workers[0].url are one server, once with a rank and ` +
				`once without (write every entry of the server with its rank, or keep one entry without)`}},
		"all ranks and one of them": {withWorkers(`{name: w0, url: "http://h:1", ranks: 2}, {name: w1, url: "http://h:1@1"}`),
			[]string{`tiers[0].workers[1].url: "http://h:1@1" and tiers[0].workers[0].url are one server, once with a ` +
				`rank and once without (write every entry of the server with its rank, or keep one entry without)`}},
		"all ranks twice": {withWorkers(`{name: w0, url: "http://h:1", ranks: 2}, {name: w1, url: "http://h:1/v1", ranks: 2}`),
			[]string{`tiers[0].workers[1].url: "http://h:1/v1" is already the URL of tiers[0].workers[0].url ` +
				`(remove one of them: a server appears once per tier or pool)`}},
		"a user": {withWorkers(`{name: w, url: "http://me:secret@10"}`), []string{
			`tiers[0].workers[0].url: "http://…@10" must not hold a user or a password; name the variable with the ` +
				`worker's key in api_key_env`}},
		"the gateway itself": {withWorkers(`{name: w, url: "http://127.0.0.1:8080@0"}`), []string{
			`warning: tiers[0].workers[0].url: "http://127.0.0.1:8080@0" is the gateway's own address (listen), so ` +
				`requests would loop (write the URL of the inference engine)`}},
		"a field of clients": {keys + `tiers: [{name: a, model: m, allow_fields: [vllm_xargs, routed_dp_rank], workers: ` +
			`[{name: w, url: "http://h:1@0"}]}]` + "\n", []string{
			`tiers[0].allow_fields[1]: "routed_dp_rank" names a rank, but the gateway chooses the ranks of the ` +
				`workers (remove it, or remove the ranks of the workers)`}},
		"other numbers of ranks": {events + withWorkers(
			`{name: w0, url: "http://h:1", ranks: 4, kv_events: {port: 10, ranks: 2}}, {name: w1, url: "http://g:1@2", `+
				`kv_events: {port: 10, ranks: 2}}`), []string{
			`tiers[0].workers[0].ranks: 4 differs from kv_events.ranks, which is 2 (remove kv_events.ranks: each rank ` +
				`of the worker publishes its own events)`,
			`tiers[0].workers[1].url: "http://g:1@2" has the rank 2, but kv_events.ranks is 2: its ranks are 0 to 1 ` +
				`(raise kv_events.ranks, or lower the rank in url)`}},
		"ports of all ranks": {events + withWorkers(
			`{name: w0, url: "http://h:1", ranks: 4, kv_events: {port: 5557, replay_port: 5560}}, `+
				`{name: w1, url: "http://g:1@3", kv_events: {port: 65533}}`), []string{
			`tiers[0].workers[0].kv_events.replay_port: ports 5560 to 5563 of replays overlap with ports 5557 to ` +
				`5560 of events (set ports that differ by at least the number of ranks, in the engine too)`,
			`tiers[0].workers[1].kv_events.port: 65533 is too high: rank 3 would have port 65536 ` +
				`(set at most 65532)`}},
		"ports of single ranks": {events + keys + `tiers:
  - name: a
    model: m
    kv_events: {port: 5557}
    workers: [{name: w0, url: "http://h:1@0"}, {name: w1, url: "http://h:1@1"}, {name: w2, url: "http://h:2@2"}]
  - name: b
    model: n
    kv_events: {port: 5558}
    workers: [{name: x, url: "http://h:3@0"}]
`, []string{`tiers[1].kv_events.port: h:5558 is the port of two workers, w1 and x: the events of one would count ` +
			`for both (set a port for each worker)`}},
	} {
		t.Run(name, func(t *testing.T) {
			got := problemsOf(t, c.src, nil)
			for i, problem := range got {
				_, got[i], _ = strings.Cut(problem, ": ") // without the position
			}
			if len(got)+len(c.want) > 0 && cmp.Diff(c.want, got) != "" {
				t.Errorf("-want +got:\n%s", cmp.Diff(c.want, got))
			}
		})
	}
}
