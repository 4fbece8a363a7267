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

// dialect is one way to ask: its path, and its body with a prompt, the most tokens
// of the answer, and whether it is a stream.
type dialect struct{ path, body string }

// dialects are those of a mixed load.
func dialects() []dialect {
	return []dialect{
		{"/chat/completions", `{"model":"sim","messages":[{"role":"user","content":%q}],"max_tokens":%d,"stream":%t}`},
		{"/completions", `{"model":"sim","prompt":%q,"max_tokens":%d,"stream":%t}`},
		{"/responses", `{"model":"sim","input":%q,"max_output_tokens":%d,"stream":%t,"store":false}`},
		{"/messages", `{"model":"sim","messages":[{"role":"user","content":%q}],"max_tokens":%d,"stream":%t}`},
	}
}

// mixed is what came of a mixed load, by requests.
type mixed struct {
	mu                      sync.Mutex // guards all
	asked, whole, cut, left int
	refused                 map[int]int     // by status
	answered                map[string]bool // by id
}

// count adds one to a number of a mixed load.
func (m *mixed) count(n *int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	*n++
}

// one asks one question of a mixed load: any dialect, a stream or not, a prompt
// of chance; one client in five leaves at a moment of chance.
func (m *mixed) one(r *stateRig, dice *rand.Rand, base string) {
	m.count(&m.asked)
	d := dialects()[dice.IntN(len(dialects()))]
	body := fmt.Sprintf(d.body, prompt(dice), 8+dice.IntN(120), dice.IntN(3) > 0)
	ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
	defer cancel()
	leaves := dice.IntN(5) == 0
	if leaves {
		defer time.AfterFunc(time.Duration(dice.IntN(300))*time.Millisecond, cancel).Stop()
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
		r.T.Errorf("a client that stays: %v", err)
	case got.Status != http.StatusOK:
		m.refused[got.Status]++
	case strings.Contains(got.Body, `"error":{`):
		m.cut++
	default:
		m.whole++
	}
}

// prompt is some text of chance, of ten to two hundred words.
func prompt(dice *rand.Rand) string {
	words := strings.Fields("the quick brown fox jumps over a lazy dog while seven wizards brew jovial potions beneath " +
		"pale moonlight and question every strange answer that ancient libraries give to travellers")
	var b strings.Builder
	for range 10 + dice.IntN(190) {
		b.WriteString(words[dice.IntN(len(words))])
		b.WriteByte(' ')
	}
	return b.String()
}

// row is what the ledger says of a request.
type row struct {
	request, worker, outcome string
	status                   int64
	prompt, cached, output   int64
	estimated                bool
}

// ledger reads a tenant's rows by the request's id; two of one request fail the
// test.
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

// TestTheLedgerIsWhatTheEnginesWrote runs a mixed load of four dialects, streams
// and whole answers, with clients that leave and workers that die, and compares
// the ledger with what the engines wrote to their sockets: exact where the
// engine's usage arrived, within 5 % where it did not.
//
// RL-08, RL-10.
func TestTheLedgerIsWhatTheEnginesWrote(t *testing.T) {
	t.Parallel()
	const clients = 32
	all := rounds(t, 1000, 10000)
	var wrote told
	r := newRig(t, 3, engines.Config{Ended: wrote.add, PerToken: 2 * time.Millisecond, Prefill: 50000,
		Script: func(string, []byte) engines.Script { return engines.Script{} }})
	sql := backends.Database(t)
	p := r.serve(rig.Settings{"store": stores(sql, backends.Redis(t).URL),
		"auth":   auth("app", "tpm: 1000000000, concurrent: 64"),
		"policy": "{ name: least_load }",
		"health": "{ path: auto, interval: 1s, timeout: 1s, down_after: 1, up_after: 1 }",
		"retry":  "{ attempts: 5, budget: 1 }",
	})
	m := &mixed{refused: map[int]int{}, answered: map[string]bool{}}
	deaths := r.mix(m, p, clients, all)
	r.quietIn(p)

	rows := ledger(t, sql, "app")
	for id := range m.answered {
		if _, there := rows[id]; !there {
			t.Errorf("the request %s was answered and has no row", id)
		}
	}
	r.compare(rows, &wrote)
	r.fills(64, p.BaseURL)
	t.Logf("%d requests, %d deaths: %d whole, %d cut, %d left by their clients, refused by status %v; %d rows", m.asked,
		deaths,
		m.whole, m.cut, m.left, m.refused, len(rows))
	if len(m.refused) > 0 {
		t.Errorf("beside one worker that died two could answer, and some were refused: %v", m.refused)
	}
	if m.whole == 0 || m.cut == 0 || m.left == 0 {
		t.Error("the load has not met everything")
	}
}

// mix has clients ask so many questions together while one worker after the
// other dies, and returns how many have.
func (r *stateRig) mix(m *mixed, p *gateway.Process, clients, questions int) (deaths int) {
	r.T.Helper()
	done := make(chan struct{})
	var left atomic.Int64
	left.Store(int64(questions))
	var work sync.WaitGroup
	for i := range clients {
		dice := rand.New(rand.NewPCG(uint64(i), 4))
		work.Go(func() {
			for left.Add(-1) >= 0 {
				m.one(r, dice, p.BaseURL)
			}
		})
	}
	go func() {
		work.Wait()
		close(done)
	}()
	for {
		select {
		case <-done:
			return deaths
		case <-time.After(rand.N(300 * time.Millisecond)):
		}
		if !allWell(p, len(r.Workers)) {
			continue // who is asked for another try must be there
		}
		w := r.Workers[rand.IntN(len(r.Workers))]
		w.Stop()
		deaths++
		pause(100 * time.Millisecond)
		w.Listen()
	}
}

// allWell reports whether a gateway finds all of its workers well.
func allWell(p *gateway.Process, workers int) bool {
	m, err := p.Metrics()
	return err == nil && m.Sum("tierway_worker_up") == float64(workers) &&
		m.Sum("tierway_worker_backoff") == 0 && m.Sum("tierway_worker_breaker") == 0
}

// sums are tokens of the ledger and of the engines' sockets.
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

// told is what engines told their requests.
type told struct {
	mu       sync.Mutex // guards the two below
	requests []*http.Request
	accounts []engines.Account
}

func (t *told) add(r *http.Request, a engines.Account) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests, t.accounts = append(t.requests, r), append(t.accounts, a)
}

// compare compares the ledger with the accounts of the workers that its rows name.
// What other workers were about to answer when they died is nobody's.
func (r *stateRig) compare(rows map[string]row, wrote *told) {
	r.T.Helper()
	wrote.mu.Lock()
	defer wrote.mu.Unlock()
	type answer struct {
		engines.Account
		path string
	}
	told := map[string]answer{} // by request
	var written engines.Tokens
	for i, a := range wrote.accounts {
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
			early.add(row, a.Tokens) // what the engine wrote was lost with it, or came too late
		case row.estimated && a.Prompt+a.Output+a.Asked == 0:
			unread.add(row, engines.Tokens{}) // sent, and cut before the engine read it
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
