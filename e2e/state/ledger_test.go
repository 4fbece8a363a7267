package state

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tierway/e2e/backends"
	"tierway/e2e/gateway"
	"tierway/e2e/rig"
	"tierway/engines"
)

// dialect is one API dialect. The body is a format with the prompt, the maximum output tokens and
// whether to stream.
type dialect struct{ path, body string }

// dialects returns the dialects of a mixed load.
func dialects() []dialect {
	return []dialect{
		{"/chat/completions", `{"model":"sim","messages":[{"role":"user","content":%q}],"max_tokens":%d,"stream":%t}`},
		{"/completions", `{"model":"sim","prompt":%q,"max_tokens":%d,"stream":%t}`},
		{"/responses", `{"model":"sim","input":%q,"max_output_tokens":%d,"stream":%t,"store":false}`},
		{"/messages", `{"model":"sim","messages":[{"role":"user","content":%q}],"max_tokens":%d,"stream":%t}`},
	}
}

// mixed counts the results of a mixed load.
type mixed struct {
	mu                      sync.Mutex // guards all
	asked, whole, cut, left int
	refused                 map[int]int     // by status
	answered                map[string]bool // by id
}

// count increments a counter of a mixed load.
func (m *mixed) count(n *int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	*n++
}

// sendOne sends one request of a mixed load: a random dialect and prompt, streamed or not. One
// client in five disconnects at a random time.
func (m *mixed) sendOne(r *stateRig, rng *rand.Rand, base string) {
	m.count(&m.asked)
	d := dialects()[rng.IntN(len(dialects()))]
	body := fmt.Sprintf(d.body, prompt(rng), 8+rng.IntN(120), rng.IntN(3) > 0)
	ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
	defer cancel()
	leaves := rng.IntN(5) == 0
	if leaves {
		defer time.AfterFunc(time.Duration(rng.IntN(300))*time.Millisecond, cancel).Stop()
	}
	got, err := r.post(ctx, base, d.path, rig.TenantKey, body)
	m.mu.Lock()
	defer m.mu.Unlock()
	if got.Status != 0 {
		m.answered[got.ID] = true
	}
	switch {
	case err != nil && leaves:
		m.left++
	case err != nil:
		r.T.Errorf("a client that did not disconnect: %v", err)
	case got.Status != http.StatusOK:
		m.refused[got.Status]++
	case strings.Contains(got.Body, `"error":{`):
		m.cut++
	default:
		m.whole++
	}
}

// prompt returns ten to two hundred random words.
func prompt(rng *rand.Rand) string {
	words := strings.Fields("the quick brown fox jumps over a lazy dog while seven wizards brew jovial potions beneath " +
		"pale moonlight and question every strange answer that ancient libraries give to travellers")
	var b strings.Builder
	for range 10 + rng.IntN(190) {
		b.WriteString(words[rng.IntN(len(words))])
		b.WriteByte(' ')
	}
	return b.String()
}

// row is the ledger's row of a request.
type row struct {
	request, worker, outcome string
	status                   int64
	prompt, cached, output   int64
	estimated                bool
}

// ledger reads a tenant's rows by request id. Two rows for one request fail the test.
func ledger(t *testing.T, sql, tenant string) map[string]row {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
	defer cancel()
	c, err := pgx.Connect(ctx, sql)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	rows, err := c.Query(ctx,
		"SELECT request_id, worker, outcome, status, prompt, cached, output, estimated <> 0 FROM ledger WHERE tenant = $1",
		tenant)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	all := map[string]row{}
	for rows.Next() {
		var r row
		if err := rows.Scan(&r.request, &r.worker, &r.outcome, &r.status, &r.prompt, &r.cached, &r.output,
			&r.estimated); err != nil {
			t.Fatal(err)
		}
		if _, twice := all[r.request]; twice {
			t.Errorf("the request %s has two rows", r.request)
		}
		all[r.request] = r
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestTheLedgerIsWhatTheEnginesWrote runs a mixed load of four dialects, streamed or not, with clients
// that disconnect and workers that die. It compares the ledger with the tokens that the engines wrote
// to their sockets: they are equal if the engine's usage arrived, and within 5 % if it did not.
//
// RL-08, RL-10.
func TestTheLedgerIsWhatTheEnginesWrote(t *testing.T) {
	t.Parallel()
	const clients = 32
	all := rounds(t, 1000, 10000)
	var wrote accounts
	r := newRig(t, 3, engines.Config{Ended: wrote.add, PerToken: 2 * time.Millisecond, Prefill: 50000,
		Script: func(string, []byte) engines.Script { return engines.Script{} }})
	sql := backends.Database(t)
	p := r.serve(rig.Settings{"store": stores(sql, backends.Redis(t).URL),
		"auth":   auth("app", "tpm: 1000000000, concurrent: 64"),
		"policy": "{ name: least_load }",
		"health": "{ path: auto, interval: 1s, timeout: 1s, down_after: 30, up_after: 1 }",
		"retry":  "{ attempts: 5, budget: 1 }",
	})
	m := &mixed{refused: map[int]int{}, answered: map[string]bool{}}
	deaths := r.runMixed(m, p, clients, all)
	r.waitUntilIdleAndWritten(p)

	rows := ledger(t, sql, "app")
	for id := range m.answered {
		if _, there := rows[id]; !there {
			t.Errorf("the request %s was answered and has no row", id)
		}
	}
	r.compare(rows, &wrote)
	r.checkNothingBooked(64, p.BaseURL)
	t.Logf("%d requests, %d kills: %d complete, %d cut, %d cancelled, rejected by status %v; %d rows", m.asked,
		deaths,
		m.whole, m.cut, m.left, m.refused, len(rows))
	if len(m.refused) > 0 {
		t.Errorf("two workers were always up, and some requests were rejected: %v", m.refused)
	}
	if m.whole == 0 || m.cut == 0 || m.left == 0 {
		t.Error("the load does not have every kind of result")
	}
}

// runMixed sends requests from several clients while it kills and restarts random workers. It
// returns the number of kills.
func (r *stateRig) runMixed(m *mixed, p *gateway.Process, clients, questions int) (deaths int) {
	r.T.Helper()
	done := make(chan struct{})
	var left atomic.Int64
	left.Store(int64(questions))
	var work sync.WaitGroup
	for i := range clients {
		rng := rand.New(rand.NewPCG(uint64(i), 4))
		work.Go(func() {
			for left.Add(-1) >= 0 {
				m.sendOne(r, rng, p.BaseURL)
			}
		})
	}
	go func() {
		work.Wait()
		close(done)
	}()
	var last *rig.Worker // the last one that was killed, and when it was back
	var back time.Time
	rng := rand.New(rand.NewPCG(1, 5))
	for {
		select {
		case <-done:
			return deaths
		case <-time.After(time.Duration(rng.Int64N(int64(300 * time.Millisecond)))):
		}
		w := r.Workers[rng.IntN(len(r.Workers))]
		if !allHealthy(p, len(r.Workers)) || w != last && time.Since(back) < unreachable {
			continue // a retry needs another healthy worker
		}
		w.Stop()
		deaths++
		pause(100 * time.Millisecond)
		w.Listen()
		last, back = w, time.Now()
	}
}

// unreachable is longer than the time for which a worker gets no request after it accepted no connection. The
// metrics do not show it.
const unreachable = 1200 * time.Millisecond

// allHealthy reports whether a gateway finds all of its workers healthy.
func allHealthy(p *gateway.Process, workers int) bool {
	m, err := p.Metrics()
	return err == nil && m.Sum("tierway_worker_up") == float64(workers) &&
		m.Sum("tierway_worker_backoff") == 0 && m.Sum("tierway_worker_breaker") == 0
}

// sums adds up tokens in the ledger and tokens that the engines wrote.
type sums struct {
	rows                  int
	ledger, engines       int64 // prompt and output
	prompt, promptEngines int64
	output, outputEngines int64
}

func (s *sums) add(r row, told engines.Tokens) {
	s.rows++
	s.ledger += r.prompt + r.output
	s.engines += told.Prompt + told.Output
	s.prompt, s.promptEngines = s.prompt+r.prompt, s.promptEngines+told.Prompt
	s.output, s.outputEngines = s.output+r.output, s.outputEngines+told.Output
}

func (s *sums) String() string {
	off := 0.0
	if s.engines > 0 {
		off = 100 * float64(s.ledger-s.engines) / float64(s.engines)
	}
	return fmt.Sprintf("%d rows: ledger %d, engines %d tokens (%+.2f %%; prompts %d of %d, answers %d of %d)",
		s.rows, s.ledger, s.engines, off, s.prompt, s.promptEngines, s.output, s.outputEngines)
}

// accounts collects the engines' accounts of their requests.
type accounts struct {
	mu       sync.Mutex // guards the fields below
	requests []*http.Request
	list     []engines.Account
}

func (t *accounts) add(r *http.Request, a engines.Account) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests, t.list = append(t.requests, r), append(t.list, a)
}

// compare compares the ledger with the accounts of the workers that its rows name. Tokens of failed
// attempts on other workers do not count.
func (r *stateRig) compare(rows map[string]row, wrote *accounts) {
	r.T.Helper()
	wrote.mu.Lock()
	defer wrote.mu.Unlock()
	type answer struct {
		engines.Account
		path string
	}
	told := map[string]answer{} // by request
	var written engines.Tokens
	for i, a := range wrote.list {
		id := wrote.requests[i].Header.Get("X-Request-Id")
		if row, there := rows[id]; there && row.worker == a.Engine {
			told[id] = answer{a, wrote.requests[i].URL.Path}
		}
		written.Prompt, written.Output = written.Prompt+a.Prompt, written.Output+a.Output
	}
	var exact, cut, unanswered, unread, early, total sums
	for id, row := range rows {
		a := told[id]
		switch total.add(row, a.Tokens); {
		case !row.estimated && row.prompt+row.output == 0 && (row.outcome == "client_gone" || row.outcome == "failed"):
			early.add(row, a.Tokens) // the engine's tokens were lost or came too late
		case row.estimated && a.Prompt+a.Output+a.Asked == 0:
			unread.add(row, engines.Tokens{}) // sent, but not read by the engine
		case row.estimated && a.Prompt+a.Output == 0:
			unanswered.add(row, engines.Tokens{Prompt: a.Asked})
		case row.estimated:
			cut.add(row, a.Tokens)
		default:
			exact.add(row, a.Tokens)
			if row.prompt != a.Prompt || row.output != a.Output || row.cached != a.Cached {
				r.T.Errorf("%s on %s (%s): the ledger has %d/%d/%d tokens of prompt, cache and answer, its engine wrote %+v",
					a.path, row.worker, row.outcome, row.prompt, row.cached, row.output, a.Tokens)
			}
		}
	}
	for what, s := range map[string]*sums{"of answers that were cut": &cut, "of prompts that got no answer": &unanswered} {
		if d := s.ledger - s.engines; max(d, -d)*20 > s.engines {
			r.T.Errorf("%s the ledger is more than 5 %% off: %v", what, s)
		}
	}
	if early.engines*100 > total.engines {
		r.T.Errorf("of what ended before anything came the engines wrote more than a hundredth: %v", &early)
	}
	if unread.ledger*100 > total.ledger {
		r.T.Errorf("more than a hundredth of the ledger is of prompts that no engine read: %v", &unread)
	}
	r.T.Logf("exact: %v", &exact)
	r.T.Logf("ended before anything came: %v", &early)
	r.T.Logf("estimated, cut answers: %v", &cut)
	r.T.Logf("estimated, prompts without an answer, by what engines count of them: %v", &unanswered)
	r.T.Logf("estimated, prompts that were sent and not read: %v", &unread)
	r.T.Logf("all: %v; all that the engines wrote, attempts of others' rows included: %d", &total,
		written.Prompt+written.Output)
}
